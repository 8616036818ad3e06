"""Checks that two runs have the same result, bit for bit."""

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
"""Metrics that no two runs share."""

Points = dict[str, list[tuple[int, float]]]
"""Name of a number -> (step, value), in the order in which they are shown."""


def newest_tensors(run: Path) -> dict[str, Tensor]:
    """Return copies of the tensors of the newest checkpoint: safetensors maps its files into memory."""
    read = read_checkpoint(list_checkpoints(run / "checkpoints")[-1])
    return {name: value.clone() for name, value in read.tensors.items()}


def require_equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    """Assert that both have the same tensors, bit for bit."""
    assert first.keys() == second.keys()
    unequal = [name for name in first if not torch.equal(first[name], second[name])]
    assert unequal == []


def rows_without_times(run: Path) -> list[dict[str, Any]]:
    rows = read_rows(run / "metrics.jsonl")
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def results_without_times(run: Path) -> list[dict[str, str]]:
    """Return the rows of `results.csv` without times."""
    with (run / "results.csv").open(newline="", encoding="utf-8") as file:
        return [
            {name: value for name, value in row.items() if name not in TIMES} for row in csv.DictReader(file)
        ]


def shown_without_times(run: Path) -> Points:
    """Return all scalars in the TensorBoard log, without times."""
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    names = sorted(set(events.Tags()["scalars"]) - TIMES)
    return {name: [(point.step, point.value) for point in events.Scalars(name)] for name in names}


def counters(run: Path) -> dict[str, Any]:
    """Return the state of the newest checkpoint, without what depends on the clock or on memory."""
    state = read_checkpoint(list_checkpoints(run / "checkpoints")[-1]).state
    hooks = {name: value for name, value in state["hooks"].items() if name not in {"saver", "summaries"}}
    hooks["num_images"] = state["hooks"]["summaries"]["num_images"]
    scaler = state["deployment"]["scaler"]  # the number of accumulation steps depends on the machine
    return {"hooks": hooks, "scaler": scaler, "optimizer": state["optimizer"], "guard": state["guard"]}


def require_same_run(first: Path, second: Path) -> None:
    """Assert that both runs have the same checkpoint and metrics, and TensorBoard log if both have one."""
    require_equal(newest_tensors(first), newest_tensors(second))
    _require_same("checkpoint", counters(first), counters(second))
    _require_same("metrics.jsonl", rows_without_times(first), rows_without_times(second))
    _require_same("results.csv", results_without_times(first), results_without_times(second))
    if all((run / "tensorboard").is_dir() for run in (first, second)):
        _require_same("tensorboard", shown_without_times(first), shown_without_times(second))


def _require_same(name: str, first: object, second: object) -> None:
    assert first == second, f"{name}:\n{first}\n{second}"
