"""Every recipe is whole: it can be stored, built, and says what it is."""

from __future__ import annotations

import pytest
import torch

from boxcrew.detectors import build_detector
from boxcrew.detectors._faster_rcnn_config import FasterRcnnConfig
from boxcrew.detectors._multibox import MultiBoxNet
from boxcrew.detectors.ssdlite import SsdLiteConfig
from boxcrew.recipes import DEFAULT, RECIPES, describe
from boxcrew.tasks.base import TASKS
from boxcrew.tasks.detection import DetectionTask, require_detection
from boxcrew.train.config import RunConfig
from boxcrew.train.init import Pretrained
from boxcrew.train.loop.hooks.freeze import Freeze

NAMES = RECIPES.names()
DETECTORS = [name for name in NAMES if RECIPES.get(name)().task.name == "detection"]
FACTS = {
    "classes": ["one", "two"],
    "counts": [3, 4],
    "kind": "images",
    "shape": [32, 32, 3],
    "encoding": {},
    "mean": [0.5, 0.5, 0.5],
    "std": [0.2, 0.2, 0.2],
}


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_the_same_after_a_way_through_plain_values(name: str) -> None:
    config = RECIPES.get(name)()
    assert RunConfig.of(config.tree()) == config


@pytest.mark.parametrize("name", NAMES)
def test_its_network_can_be_built_and_its_patterns_match(name: str) -> None:
    config = RECIPES.get(name)()
    with torch.random.fork_rng():
        kind = TASKS.get(config.task.name)
        task = kind.build(config.task, kind.facts_class.from_json(FACTS))
    Freeze(task, trainable=config.trainable, unfreeze=config.unfreeze)
    if isinstance(task.network, MultiBoxNet):
        assert len(task.network.anchors) > 1000


@pytest.mark.parametrize("finest_stride", [8, 16])
@pytest.mark.parametrize("name", DETECTORS)
def test_all_that_weights_do_not_fill_learns(name: str, finest_stride: int) -> None:
    """Wherever the first map is put: a layer that is both random and frozen would spoil what follows it."""
    config = RECIPES.get(name)()
    detector = require_detection(config.task).detector
    if isinstance(detector, SsdLiteConfig | FasterRcnnConfig) and detector.finest_stride == "auto":
        detector = detector.model_copy(update={"finest_stride": finest_stride})
    with torch.random.fork_rng():
        task = DetectionTask(build_detector(detector, ("one", "two")))
    freeze = Freeze(task, trainable=config.trainable, unfreeze=config.unfreeze)
    filled = []
    if isinstance(config.init, Pretrained):
        filled.append(f"detector.{task.detector.backbone_prefix()}")
        if config.init.class_weights and (second := task.detector.class_backbone()):
            filled.append(f"detector.{second.prefix}")
    assert all(name.startswith(tuple(filled)) for name in freeze.never_learn)


@pytest.mark.parametrize("name", NAMES)
def test_its_docstring_says_what_it_is_and_how_to_call_it(name: str) -> None:
    text = RECIPES.get(name).__doc__ or ""
    assert len(describe(name)) > 20
    assert "boxcrew train" in text or "make train" in text


def test_the_default_is_one_of_them() -> None:
    assert DEFAULT in NAMES
