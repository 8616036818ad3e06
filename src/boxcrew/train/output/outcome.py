"""What a run leaves behind: weights that say what they are, a summary, and last words on the screen."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boxcrew.core.units import format_bytes, format_duration
from boxcrew.deploy.memory import peak_memory
from boxcrew.nets.weights import save_weights
from boxcrew.tasks.base import Task, TaskConfig
from boxcrew.tasks.data import DataFacts, TaskData
from boxcrew.train.loop.hooks.evaluation import EvaluationHook
from boxcrew.train.loop.hooks.summaries import Summaries
from boxcrew.train.loop.trainer import Trainer
from boxcrew.train.output.screen import Screen


@dataclass(frozen=True, kw_only=True)
class Outcome:
    folder: Path
    task_data: TaskData
    summary: dict[str, Any]
    interrupted: bool
    trouble: str | None = None  # files that could not be written in the end, and why


def save_task(path: Path, task: Task, config: TaskConfig, facts: DataFacts, *, step: int, seed: int) -> None:
    """Weights with all that is needed to use them, and to judge them on what was held out with the seed."""
    path.parent.mkdir(exist_ok=True)
    meta = {"format": 2, "task": config.tree(), "facts": dict(facts), "step": step, "seed": seed}
    save_weights(path, task.network.state_dict(), meta)


def summarize(
    folder: Path, trainer: Trainer, summaries: Summaries, evaluation_hook: EvaluationHook, *, state: str
) -> dict[str, Any]:
    """What `summary.json` holds: the numbers of the best weights, and how the run went."""
    place = folder / "evaluation.json"
    best = (
        json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {"numbers": {}, "classes": []}
    )
    return {
        "state": state,
        "stopped_because": trainer.stop_reason,
        **best["numbers"],
        "best_step": evaluation_hook.best_step,
        "steps": trainer.step,
        "epochs": trainer.progress.epoch,
        "skipped_steps": trainer.guard.skipped_steps,
        "rollbacks": trainer.guard.rollbacks,
        "train_seconds": trainer.elapsed,
        "images_per_second": summaries.num_images / max(summaries.seconds, 1e-9),
        "data_wait_share": summaries.data_wait / max(summaries.seconds, 1e-9),
        "peak_memory_bytes": max(peak_memory(clone.device) or 0 for clone in trainer.deployment.own_clones),
        "milliseconds": best.get("milliseconds", {}),
        "classes": best["classes"],
    }


def say_result(outcome: Outcome, screen: Screen) -> None:
    summary = outcome.summary
    if summary["best_step"] is not None and summary["milliseconds"]:
        report = {"numbers": summary, **summary}
        say_scores(f"best weights, step {summary['best_step']}", report, type(outcome.task_data), screen)
    seconds, memory = format_duration(summary["train_seconds"]), format_bytes(summary["peak_memory_bytes"])
    screen.say(
        f"training: {seconds}, {summary['images_per_second']:.1f} samples/s, "
        f"data wait {summary['data_wait_share']:.0%}, peak memory {memory}"
    )
    if summary["skipped_steps"]:
        times = f", the run went back {summary['rollbacks']} times" if summary["rollbacks"] else ""
        screen.warn(f"{summary['skipped_steps']} steps were left out{times}")
    if summary["stopped_because"]:
        screen.say(f"stopped: {summary['stopped_because']}")
    if outcome.interrupted:
        screen.say(f"to go on: boxcrew resume run={outcome.folder}")


def say_scores(title: str, report: dict[str, Any], kind: type[TaskData], screen: Screen) -> None:
    """A table. `report` is the JSON of an evaluation."""
    table = kind.scores(report)
    screen.table(title, table.columns, table.rows)
    times = ", ".join(
        f"{name} {ms:.1f}" if ms >= 1 else f"{name} {ms:.2g}" for name, ms in report["milliseconds"].items()
    )
    screen.say(f"speed: {times} ms {kind.config_class.sample}")
