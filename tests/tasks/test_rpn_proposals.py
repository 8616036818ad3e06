"""Regions that a trained Faster R-CNN proposes, as inputs of other detectors."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from boxcrew.core.errors import ModelError, UsageError
from boxcrew.core.types import Image
from boxcrew.detectors import DetectorConfig
from boxcrew.detectors._faster_rcnn_config import FasterRcnnConfig
from boxcrew.detectors.fast_rcnn import FastRcnnConfig
from boxcrew.detectors.yolo import YoloConfig
from boxcrew.tasks.detection import DetectionConfig, DetectionData
from boxcrew.tasks.detection_inputs import proposal_method, proposer_of
from boxcrew.tasks.facts import DataFacts
from boxcrew.train.output.outcome import save_task
from tests.helpers.tiny import BACKBONE

FASTER = FasterRcnnConfig(backbone=BACKBONE, neck=16, head_width=32, size=64, proposals=20)
FACTS = DataFacts(classes=("cup", "jar"))


def write(file: Path, detector: DetectorConfig, seed: int = 0) -> Path:
    config = DetectionConfig(detector=detector)
    torch.manual_seed(seed)
    task = DetectionData.build(config, FACTS)
    file.parent.mkdir(parents=True, exist_ok=True)
    save_task(file, task, config, FACTS, step=1, seed=0)
    return file


def photo() -> Image:
    return np.random.default_rng(0).integers(0, 256, (40, 90, 3), dtype=np.uint8)


def test_regions_are_those_of_the_network_in_pixels_of_the_image(tmp_path: Path) -> None:
    write(tmp_path / "run" / "weights" / "best.safetensors", FASTER)
    method = proposal_method(str(tmp_path / "run"))
    regions = method(photo())
    assert regions.dtype == np.float32
    assert 1 <= len(regions) <= 20
    assert (regions[:, :2] >= 0).all()
    assert (regions[:, 2:] <= [90, 40]).all()
    assert regions[:, 2].max() > 64  # not in pixels of the network's input
    assert np.array_equal(regions, pickle.loads(pickle.dumps(method))(photo()))
    few = proposer_of(FastRcnnConfig(proposal_method=str(tmp_path / "run"), proposals=3))
    assert few is not None
    assert np.array_equal(few(photo()), regions[:3])


def test_other_weights_in_the_same_place_are_another_method(tmp_path: Path) -> None:
    file = write(tmp_path / "rpn.safetensors", FASTER)
    first, regions = proposal_method(str(file)).key, proposal_method(str(file))(photo())
    assert proposal_method(str(file)).key == first
    write(file, FASTER, seed=1)
    assert proposal_method(str(file)).key != first
    assert not np.array_equal(proposal_method(str(file))(photo()), regions)


def test_what_proposes_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such run"):
        proposal_method("best")
    file = write(tmp_path / "yolo.safetensors", YoloConfig(backbone=BACKBONE, size=64))
    with pytest.raises(ModelError, match="yolo, which proposes no regions"):
        proposal_method(str(file))
    with pytest.raises(ModelError, match="not a run with weights"):
        proposal_method(str(tmp_path))
