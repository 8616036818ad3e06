"""The rows of a comparison: what each run has reached, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from boxcrew.core.errors import UsageError
from boxcrew.core.units import format_bytes, format_count, format_duration
from boxcrew.nets.weights import find_weights
from boxcrew.tasks.base import TASKS
from boxcrew.train.run.directory import read_record, require_run
from boxcrew.train.run.loading import read_task_weights

_DETECTION = ("AP", "AP50", "APs", "APm", "APl")
_NO_PARAMETERS = ("running_mean", "running_var", "num_batches_tracked", "normalize.mean", "normalize.std")
_TIMES = ("pre", "proposals", "network", "post")  # in this order, others after them


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run of a comparison."""

    name: str
    folder: str
    task: str
    data: str
    scores: Mapping[str, float | None]
    stage_seconds: Mapping[str, float]  # training time of each stage; of the run, if it has none
    milliseconds: Mapping[str, float]  # of a sample, by part
    peak_memory_bytes: int
    num_parameters: int
    weight_bytes: int
    threshold: float | None  # score from which on a detector's boxes are shown: that of its best F1

    @property
    def train_seconds(self) -> float:
        return sum(self.stage_seconds.values())

    @property
    def total_milliseconds(self) -> float:
        return sum(self.milliseconds.values())

    def tree(self) -> dict[str, Any]:
        return {**asdict(self), "train_seconds": self.train_seconds}


def read_row(name: str, folder: Path) -> Row:
    """Read what a finished run has reached; `UsageError` if it is not finished."""
    summary = read_record(require_run(folder), "summary.json")
    if summary.get("state") != "finished":
        raise UsageError(f"{folder}: this run is not finished", advice=f"boxcrew resume run={folder}")
    weights, meta = read_task_weights(folder, which="best")
    kind = TASKS.get(meta["task"]["name"])
    is_detection = meta["task"]["name"] == "detection"
    metrics = _DETECTION if is_detection else tuple(kind.config_class.metrics)
    stages = {stage["folder"]: stage["train_seconds"] for stage in summary.get("stages", [])}
    return Row(
        name=name,
        folder=str(folder),
        task=meta["task"]["name"],
        data=str(read_record(folder, "data_report.json").get("root", "")),
        scores={metric: summary[metric] for metric in metrics if metric in summary},
        stage_seconds=stages or {"training": summary["train_seconds"]},
        milliseconds=summary["milliseconds"],
        peak_memory_bytes=summary["peak_memory_bytes"],
        num_parameters=sum(
            value.numel() for key, value in weights.state.items() if not key.endswith(_NO_PARAMETERS)
        ),
        weight_bytes=find_weights(folder, which="best").stat().st_size,
        threshold=summary.get("threshold"),
    )


def require_comparable(rows: Sequence[Row]) -> str:
    """Return a warning about runs with other data, or an empty string; `UsageError` if tasks differ."""
    tasks = {row.task: row.folder for row in rows}
    if len(tasks) > 1:
        listed = ", ".join(f"{folder} ({task})" for task, folder in tasks.items())
        raise UsageError(f"runs of different tasks cannot be compared: {listed}")
    sets = sorted({row.data for row in rows})
    return f"the runs were evaluated on different data: {', '.join(sets)}" if len(sets) > 1 else ""


def short_table(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the columns and cells that fit on a screen."""
    metrics = list(rows[0].scores)[:2]
    columns = ("run", *metrics, "training", "ms a sample", "memory", "parameters")
    return columns, [
        (
            row.name,
            *(_score(row, metric) for metric in metrics),
            format_duration(row.train_seconds),
            f"{row.total_milliseconds:.1f}",
            format_bytes(row.peak_memory_bytes),
            format_count(row.num_parameters),
        )
        for row in rows
    ]


def _score(row: Row, metric: str) -> str:
    score = row.scores.get(metric)
    return "-" if score is None else f"{score:.3f}"


def table(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the columns and cells of a comparison, as text."""
    metrics = list(dict.fromkeys(metric for row in rows for metric in row.scores))
    seen = dict.fromkeys(name for row in rows for name in row.milliseconds)
    times = sorted(seen, key=lambda name: _TIMES.index(name) if name in _TIMES else len(_TIMES))
    columns = ("run", *metrics, "training", *(f"{name} ms" for name in times), "memory", "parameters", "disk")
    return columns, [
        (
            row.name,
            *(_score(row, metric) for metric in metrics),
            _training(row),
            *(f"{row.milliseconds[name]:.1f}" if name in row.milliseconds else "-" for name in times),
            format_bytes(row.peak_memory_bytes),
            format_count(row.num_parameters),
            format_bytes(row.weight_bytes),
        )
        for row in rows
    ]


def _training(row: Row) -> str:
    """Return the training time, and that of each stage if there are several."""
    parts = [f"{name.partition('-')[2]} {format_duration(time)}" for name, time in row.stage_seconds.items()]
    total = format_duration(row.train_seconds)
    return total if len(parts) == 1 else f"{total} ({', '.join(parts)})"
