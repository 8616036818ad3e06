"""The result of a run: weight files with their description, and the last lines on the screen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boxcrew.core.storage.address import Url
from boxcrew.core.units import format_bytes, format_duration
from boxcrew.nets.weights import save_weights
from boxcrew.tasks.base import Task, TaskConfig
from boxcrew.tasks.data import TaskData
from boxcrew.tasks.facts import DataFacts
from boxcrew.train.output.screen import Screen


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finished or interrupted run."""

    folder: Path
    url: Url | None = None  # under which it is stored, if it is
    task_data: TaskData
    summary: dict[str, Any]
    interrupted: bool
    preempted: bool = False  # interrupted because only some of its replicas were told to end
    trouble: str | None = None  # the files that could not be written, and why
    stage_folders: tuple[Path, ...] = ()  # if the run has stages


def save_task(path: Path, task: Task, config: TaskConfig, facts: DataFacts, *, step: int, seed: int) -> None:
    """Write weights with all that is needed to use them. The seed decides which samples were held out."""
    path.parent.mkdir(exist_ok=True)
    meta = {"format": 2, "task": config.tree(), "facts": facts.to_json(), "step": step, "seed": seed}
    save_weights(path, task.network.state_dict(), meta)


def print_result(outcome: Outcome, metric: str, screen: Screen) -> None:
    """Print the scores of the best weights, which `metric` has decided, and the numbers of the training."""
    summary = outcome.summary
    if summary["best_step"] is not None and summary["milliseconds"]:
        report = {"numbers": summary, **summary}
        reason = outcome.task_data.unmeasured(metric)
        title = f"best weights, step {summary['best_step']}"
        if reason is not None:
            title = f"last weights, step {summary['best_step']}: {reason}"
        print_scores(title, report, type(outcome.task_data), screen)
    seconds, memory = format_duration(summary["train_seconds"]), format_bytes(summary["peak_memory_bytes"])
    screen.info(
        f"training: {seconds}, {summary['images_per_second']:.1f} samples/s, "
        f"data wait {summary['data_wait_share']:.0%}, peak memory {memory}"
    )
    if summary["skipped_steps"]:
        times = f", {summary['rollbacks']} rollbacks" if summary["rollbacks"] else ""
        screen.warn(f"{summary['skipped_steps']} steps were skipped{times}")
    if summary["stopped_because"]:
        screen.info(f"stopped: {summary['stopped_because']}")
    if outcome.preempted:
        screen.info(f"preempted: saved at step {summary['steps']}, no error")
    if outcome.interrupted:
        screen.info(f"to continue: boxcrew resume run={outcome.folder}")


def print_scores(title: str, report: dict[str, Any], kind: type[TaskData], screen: Screen) -> None:
    """Print a table of the scores and the speed. `report` is the JSON of an evaluation."""
    table = kind.scores(report)
    screen.table(title, table.columns, table.rows)
    milliseconds = report["milliseconds"].items()
    times = ", ".join(f"{name} {ms:.1f}" if ms >= 1 else f"{name} {ms:.2g}" for name, ms in milliseconds)
    screen.info(f"speed: {times} ms {kind.config_class.sample}")
