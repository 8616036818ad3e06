"""The summary of a run with stages: the numbers of all stages together, and those of each stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boxcrew.core.units import counted, format_bytes, format_duration
from boxcrew.train.output.screen import Screen

Summary = Mapping[str, Any]
"""The content of a `summary.json`."""

ADDED = ("steps", "epochs", "images", "skipped_steps", "rollbacks", "train_seconds")
NOT_REPEATED = ("milliseconds", "classes", "first_steps", "advice")  # long, and in the stage's own summary


@dataclass(frozen=True, kw_only=True)
class StageResult:
    """A stage that has run, perhaps not to its end."""

    folder: str  # name of its directory
    kind: str
    summary: Summary


def combined_summary(results: Sequence[StageResult]) -> dict[str, Any]:
    """Return the summary of a run from those of its stages.

    Counts and times are sums, speeds are means over the time of all steps, and memory is the largest. The
    rest is that of the last stage, such as its scores and the step of its best weights.
    """
    summaries = [result.summary for result in results]
    seconds = [_step_seconds(summary) for summary in summaries]
    waits = [time * summary["data_wait_share"] for time, summary in zip(seconds, summaries, strict=True)]
    total = {name: sum(summary[name] for summary in summaries) for name in ADDED}
    first_steps = [summary["first_steps"] for summary in summaries if summary["first_steps"] is not None]
    return {
        **summaries[-1],
        **total,
        "images_per_second": total["images"] / max(sum(seconds), 1e-9),
        "data_wait_share": sum(waits) / max(sum(seconds), 1e-9),
        "peak_memory_bytes": max(summary["peak_memory_bytes"] for summary in summaries),
        "first_steps": first_steps[-1] if first_steps else None,
        "advice": _without_repeats([item for summary in summaries for item in summary["advice"]]),
        "stages": [_stage_entry(result) for result in results],
    }


def _stage_entry(result: StageResult) -> dict[str, Any]:
    own = {name: value for name, value in result.summary.items() if name not in NOT_REPEATED}
    return {"folder": result.folder, "kind": result.kind, **own}


def _step_seconds(summary: Summary) -> float:
    """Return the seconds of a stage's steps, from which its speed was computed; 0 if it had none."""
    return float(summary["images"] / summary["images_per_second"]) if summary["images"] else 0.0


def _without_repeats(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [item for index, item in enumerate(items) if item not in items[:index]]


def print_summary(summary: Summary, screen: Screen) -> None:
    """Print the time of each stage, and the numbers of all of them together."""
    for stage in summary["stages"]:
        steps = "closed form" if stage["kind"] == "solve" else counted(stage["steps"], "step")
        screen.info(f"stage {stage['folder']}: {format_duration(stage['train_seconds'])}, {steps}")
    seconds, memory = format_duration(summary["train_seconds"]), format_bytes(summary["peak_memory_bytes"])
    screen.info(
        f"training, all stages: {seconds}, {counted(summary['steps'], 'step')}, "
        f"{summary['images_per_second']:.1f} samples/s, data wait {summary['data_wait_share']:.0%}, "
        f"peak memory {memory}"
    )
