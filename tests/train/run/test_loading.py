"""What weight files say of themselves decides whether they can be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxcrew.core.errors import ModelError
from boxcrew.nets.weights import read_weights, save_weights
from boxcrew.train.run.loading import load_task
from tests.helpers.tiny import BACKBONE
from tests.helpers.untrained import untrained_run


def test_weights_with_a_setting_that_does_not_exist_any_more_are_refused_by_name(
    tiny_set: Path, tmp_path: Path
) -> None:
    detector = {"name": "ssdlite", "backbone": BACKBONE, "size": 96}
    run = untrained_run(tmp_path / "run", {"detector": detector, "data": str(tiny_set)})
    file = run / "weights" / "best.safetensors"
    weights = read_weights(file)
    assert weights.meta is not None
    task = dict(weights.meta["task"])
    transforms = dict(task["transforms"])
    transforms["colour"] = transforms.pop("color")
    save_weights(file, weights.state, {**weights.meta, "task": {**task, "transforms": transforms}})
    with pytest.raises(
        ModelError, match=r"best\.safetensors: .*transforms\.colour: no such setting"
    ) as error:
        load_task(run, device="cpu")
    assert "with the version of boxcrew that wrote it" in (error.value.advice or "")
