"""What two runs that are to be the same must share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from boxcrew.train.checkpoint import list_checkpoints, read_checkpoint
from boxcrew.train.metrics import read_rows

TIMES = {"time", "images_per_second", "data_wait"}
"""Numbers of metrics that no two runs share."""


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


def require_same_run(first: Path, second: Path) -> None:
    """All that was learnt, and all that was written about it."""
    require_equal(newest_tensors(first), newest_tensors(second))
    assert rows_without_times(first) == rows_without_times(second)
