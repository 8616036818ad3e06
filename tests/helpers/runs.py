"""What two runs that are to be the same must share."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from boxcrew.train.loop.checkpoint import list_checkpoints, read_checkpoint
from boxcrew.train.output.metrics import read_rows

TIMES = {"time", "images_per_second", "data_wait"}
"""Numbers of metrics that no two runs share."""

Points = dict[str, list[tuple[int, float]]]
"""Name of a number -> (step, value), in the order in which they are shown."""


def newest_tensors(run: Path) -> dict[str, Tensor]:
    """Of its newest checkpoint. Copies: what safetensors reads follows its file for as long as both live."""
    read = read_checkpoint(list_checkpoints(run / "checkpoints")[-1])
    return {name: value.clone() for name, value in read.tensors.items()}


def require_equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    """Bit for bit."""
    assert first.keys() == second.keys()
    unequal = [name for name in first if not torch.equal(first[name], second[name])]
    assert unequal == []


def rows_without_times(run: Path) -> list[dict[str, Any]]:
    rows = read_rows(run / "metrics.jsonl")
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def results_without_times(run: Path) -> list[dict[str, str]]:
    """The lines of `results.csv`."""
    with (run / "results.csv").open(newline="", encoding="utf-8") as file:
        return [
            {name: value for name, value in row.items() if name not in TIMES} for row in csv.DictReader(file)
        ]


def shown_without_times(run: Path) -> Points:
    """What TensorBoard shows of its numbers, all of them."""
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    names = sorted(set(events.Tags()["scalars"]) - TIMES)
    return {name: [(point.step, point.value) for point in events.Scalars(name)] for name in names}


def counters(run: Path) -> dict[str, Any]:
    """What the newest checkpoint holds beside tensors, without what depends on the clock or on memory."""
    state = read_checkpoint(list_checkpoints(run / "checkpoints")[-1]).state
    hooks = {name: value for name, value in state["hooks"].items() if name not in {"saver", "summaries"}}
    hooks["num_images"] = state["hooks"]["summaries"]["num_images"]
    scaler = state["deployment"]["scaler"]  # in how many parts memory allows a step is the machine's affair
    return {"hooks": hooks, "scaler": scaler, "optimizer": state["optimizer"], "guard": state["guard"]}


def require_same_run(first: Path, second: Path) -> None:
    """All that was learnt, and all that was written about it. TensorBoard's numbers where both have them."""
    require_equal(newest_tensors(first), newest_tensors(second))
    _require_same("checkpoint", counters(first), counters(second))
    _require_same("metrics.jsonl", rows_without_times(first), rows_without_times(second))
    _require_same("results.csv", results_without_times(first), results_without_times(second))
    if all((run / "tensorboard").is_dir() for run in (first, second)):
        _require_same("tensorboard", shown_without_times(first), shown_without_times(second))


def _require_same(name: str, first: object, second: object) -> None:
    assert first == second, f"{name}:\n{first}\n{second}"
