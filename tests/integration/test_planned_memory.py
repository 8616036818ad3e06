"""Runs that have to do with less memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from boxcrew.core.errors import UsageError
from boxcrew.plan.plan import Plan
from boxcrew.train.config import RunConfig
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import explain

Run = Callable[..., Outcome]
MakeConfig = Callable[..., RunConfig]
LARGE = {"name": "ssdlite", "size": 320, "backbone": "mobilenetv3_small_050"}
SETTINGS = {"steps": 2, "batch": 6, "detector": LARGE, "deploy": {"threads": 1, "batch_norm": "frozen"}}
"""BatchNorms that learn see one part of a step at a time; all else is the same in any number of parts."""
MIB = 1 << 20


def test_a_run_with_a_limit_computes_fewer_samples_at_once_and_learns_the_same(
    photos: Path, tmp_path: Path, run: Run, config: MakeConfig
) -> None:
    # First, for this process keeps memory of its first run that a plan then counts.
    run(photos, tmp_path / "unlimited", **SETTINGS)
    (plan,) = explain(config(photos, tmp_path / "none", **SETTINGS), Screen()).plans
    assert plan.accumulation == 1
    assert plan.predicted is not None
    budget = plan.predicted.on("cpu").needed - 60 * MIB
    run(photos, tmp_path / "limited", **SETTINGS, goal=f"budget:{budget}B")
    followed = Plan.read(tmp_path / "limited" / "plan.json", setting="plan")
    assert followed.accumulation > 1
    start = f"{followed.accumulation} micro-batches per step: "
    assert any(reason.startswith(start) for reason in followed.reasons)
    plain, parted = (
        load_file(tmp_path / name / "weights" / "last.safetensors") for name in ("unlimited", "limited")
    )
    for name, tensor in plain.items():
        assert torch.allclose(tensor, parted[name], rtol=1e-4, atol=1e-6), name


def test_a_limit_that_nothing_fits_into_is_refused_before_anything_is_made(
    photos: Path, tmp_path: Path, run: Run
) -> None:
    with pytest.raises(
        UsageError, match=r"goal=budget:.*: not enough memory: a micro-batch of 1 sample needs"
    ):
        run(photos, tmp_path / "run", **SETTINGS, goal="budget:50MB")
    assert not (tmp_path / "run" / "plan.json").exists()


def test_activations_that_are_computed_again_teach_the_same(photos: Path, tmp_path: Path, run: Run) -> None:
    run(photos, tmp_path / "kept", steps=3)
    run(photos, tmp_path / "again", steps=3, deploy={"threads": 1, "recompute": True})
    assert Plan.read(tmp_path / "again" / "plan.json", setting="plan").recompute
    kept, again = (load_file(tmp_path / name / "weights" / "last.safetensors") for name in ("kept", "again"))
    assert all(torch.equal(kept[name], again[name]) for name in kept)
