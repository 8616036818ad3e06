"""A validation split on which nothing can be measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import safetensors.torch

from boxcrew.api import run_config, train_run
from boxcrew.core.config import parse_words
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.validate import ValConfig, validate
from tests.helpers.damage import VocSet
from tests.helpers.runs import require_equal
from tests.helpers.tiny import TINY


@pytest.fixture
def without_boxes(tiny_set: Path, tmp_path: Path) -> Path:
    """A set whose validation images have no box."""
    data = VocSet(Path(shutil.copytree(tiny_set, tmp_path / "photos")))
    for name in data.names("val"):
        page = ET.parse(data.page(name))
        for box in page.findall("object"):
            page.getroot().remove(box)
        page.write(data.page(name))
    return data.root


def test_a_validation_split_without_boxes_is_said_before_training_and_measured_as_nothing(
    without_boxes: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = (*TINY, f"data={without_boxes}", f"out={run}", "steps=2", "loader.workers=0")
    train_run(run_config("starter", parse_words(words)[1]), Screen())
    log = (run / "train.log").read_text()
    said = "the validation split has no boxes: AP cannot be measured; the last weights are used as the best"
    assert log.index(said) < log.index("training: 2 steps")
    assert "step 1: no boxes to measure, 4 images in " in log
    assert "last weights, step 2: the validation split has no boxes" in log
    for wrong in ("-1.0", "best so far", "validation images"):
        assert wrong not in log
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["AP"], summary["AP50"], summary["recall"]) == (None, None, None)
    assert (summary["state"], summary["best_step"]) == ("finished", 2)
    weights = [
        safetensors.torch.load_file(run / "weights" / f"{name}.safetensors") for name in ("best", "last")
    ]
    require_equal(*weights)
    assert "AP" not in (run / "results.csv").read_text().splitlines()[0].split(",")
    assert (run / "plots" / "confusion_matrix.png").is_file()
    report = validate(ValConfig(run=run, device="cpu"), Screen())["best"]
    assert report["numbers"]["AP"] is None
