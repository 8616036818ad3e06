"""Weights offered to a whole run that would do harm or do not fit: refused before anything is made."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from boxcrew.core.errors import ModelError
from boxcrew.train.output.outcome import Outcome

Run = Callable[..., Outcome]


class Trap:
    """Makes a directory when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.place),)


@pytest.mark.parametrize("init", [("finetune", "checkpoint"), ("pretrained", "weights")], ids=lambda i: i[0])
def test_malicious_pickle_as_weights(photos: Path, tmp_path: Path, run: Run, init: tuple[str, str]) -> None:
    file, sprung = tmp_path / "weights.pth", tmp_path / "sprung"
    torch.save({"backbone.weight": torch.ones(3), "x": Trap(sprung)}, file)
    with pytest.raises(ModelError, match=r"weights\.pth: holds more than tensors"):
        run(photos, tmp_path / "run", init={"kind": init[0], init[1]: str(file)})
    assert not sprung.exists()
    assert not (tmp_path / "run").exists()


def test_weights_of_wrong_shapes(photos: Path, whole: Path, tmp_path: Path, run: Run) -> None:
    state = safetensors.torch.load_file(whole / "weights" / "best.safetensors")
    file = tmp_path / "other.safetensors"
    safetensors.torch.save_file({name: torch.zeros(7, 7, 7) for name in state}, file)
    with pytest.raises(ModelError, match=r"other\.safetensors"):
        run(photos, tmp_path / "run", init={"kind": "finetune", "checkpoint": str(file)})
    assert not (tmp_path / "run").exists()
