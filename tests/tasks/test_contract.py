"""The contract of every kind of task, on each kind of data that it learns from."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from boxcrew.core.config import Tree
from boxcrew.core.errors import DataError
from boxcrew.core.types import Floats
from boxcrew.data.config import DataConfig
from boxcrew.data.detection.records import Record
from boxcrew.data.images.reading import write_image
from boxcrew.data.images.source_image import DecodedImage
from boxcrew.data.loading.workers import Workers
from boxcrew.detectors import ProposalConfig
from boxcrew.recipes import RECIPES
from boxcrew.tasks import frechet_features
from boxcrew.tasks.base import TASKS
from boxcrew.tasks.data import EvalOptions, OpenOptions, TaskData
from boxcrew.tasks.detection import DetectionConfig, DetectionData
from boxcrew.testing import task_data as contract
from boxcrew.testing.devices import check_devices
from boxcrew.train.loop import optim
from tests.helpers import two_headed


def write_pictures(folder: Path) -> Path:
    draw = np.random.default_rng(0)
    for label, level in (("dark", 60), ("light", 200)):
        for number in range(12):
            image = draw.integers(level - 40, level + 40, (16, 20, 3)).astype(np.uint8)
            (folder / label).mkdir(parents=True, exist_ok=True)
            write_image(folder / label / f"{number}.png", image)
    return folder


def write_table(file: Path) -> Path:
    draw = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{'yes' if a > b else 'no'}" for a, b in draw.normal(size=(40, 2))]
    file.write_text("\n".join(["width,height,wider", *rows]) + "\n")
    return file


def write_words(folder: Path) -> Path:
    folder.mkdir()
    for name, letters in (("vowels", "aeiou"), ("others", "bcdfg")):
        draw = np.random.default_rng(len(letters))
        words = ["".join(draw.choice(list(letters), size=n)) for n in draw.integers(2, 9, 30)]
        (folder / f"{name}.txt").write_text("\n".join(words) + "\n")
    return folder


def write_text(file: Path) -> Path:
    file.write_text("the tea is on the shelf, and the cup is beside it. " * 40)
    return file


def write_one_folder(folder: Path) -> Path:
    """Pictures that belong to no class."""
    return write_pictures(folder) / "dark"


WRITERS = {
    "images": write_pictures,
    "one folder": write_one_folder,
    "table": write_table,
    "words": write_words,
    "text": write_text,
}
FC: Tree = {"name": "fc", "widths": [8]}
GAN: Tree = {"width": 4, "latent": 6}
MIXED: Tree = {"mixup": 0.4, "cutmix": 1.0}
READER: Tree = {"hidden": 8, "cells": "gru", "bidirectional": True}
PENALISED: Tree = {"loss": "wasserstein", "penalty": 10.0, "spectral_norm": False}
MOVED: Tree = {"flip": 0.5, "shift": 2}
KINDS: list[tuple[str, str, Tree]] = [
    ("classification", "images", {"net": {"name": "cnn", "width": 4}, "size": 16, "augment": MOVED}),
    ("classification", "images", {"net": FC, "size": 8, "augment": MIXED}),
    ("classification", "table", {"net": FC, "class_weights": True}),
    ("sequence", "images", {"net": {"hidden": 8}, "size": 12}),
    ("sequence", "words", {"net": READER, "augment": {"drop_tokens": 0.2}}),
    ("sequence", "text", {"net": {"hidden": 8}, "length": 16}),
    ("sequence", "text", {"net": {"hidden": 8}, "length": 16, "augment": {"drop_tokens": 0.2}, "l1": 1e-3}),
    ("gan", "images", {"size": 28, **GAN}),
    ("gan", "images", {"size": 32, **GAN, **PENALISED}),
    ("gan", "one folder", {"size": 28, **GAN}),
]
SUFFIXES = {"table": ".csv", "text": ".txt"}


@pytest.fixture(autouse=True)
def judged_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train the feature network of GANs for one step instead of 400: their distance does not matter here."""
    monkeypatch.setattr(frechet_features, "STEPS", 1)


@pytest.fixture(params=KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}")
def task_data(request: pytest.FixtureRequest, tmp_path: Path) -> TaskData:
    name, data, settings = request.param
    place = WRITERS[data](tmp_path / f"data{SUFFIXES.get(data, '')}")
    kind = TASKS.get(name)
    config = kind.config_class.of({"name": name, **settings})
    return kind.open(config, OpenOptions(data=DataConfig(path=str(place)), seed=0))


def test_every_kind_is_looked_at(tiny_set: Path) -> None:
    assert {name for name, _, _ in KINDS} | {"detection"} == set(TASKS.names())
    kind = TASKS.get("detection")
    mixed = {"mosaic": 0.5, "mixup": 0.5}
    config = kind.config_class.of(
        {
            "name": "detection",
            "detector": {"backbone": "mobilenetv3_small_050", "size": 96},
            "transforms": mixed,
        }
    )
    check_all(kind.open(config, OpenOptions(data=DataConfig(path=str(tiny_set)), seed=0)))


def near_objects(record: Record) -> Floats:
    return np.concatenate((record.target.boxes - 5, record.target.boxes + 5))


def test_a_detector_that_takes_regions(tiny_set: Path) -> None:
    kind = TASKS.get("detection")
    with two_headed.registered() as name:
        config = kind.config_class.of({"name": "detection", "detector": {"name": name}})
        task_data = kind.open(config, OpenOptions(data=DataConfig(path=str(tiny_set)), seed=0))
        assert isinstance(task_data, DetectionData)
        check_all(replace(task_data, regions=near_objects))


def test_regions_reach_the_network_when_it_is_evaluated(
    tiny_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Tensor, ...]] = []
    original = two_headed.TwoHeaded.forward

    def forward(self: two_headed.TwoHeaded, *inputs: Tensor) -> tuple[Tensor, ...]:
        seen.append(inputs[1:])
        return original(self, *inputs)

    monkeypatch.setattr(two_headed.TwoHeaded, "forward", forward)
    with two_headed.registered() as name:
        config = DetectionConfig.of({"name": "detection", "detector": {"name": name}})
        opened = DetectionData.open(config, OpenOptions(data=DataConfig(path=str(tiny_set)), seed=0))
        task_data = replace(opened, regions=near_objects)
        task = DetectionData.build(config, task_data.facts).eval()
    options = EvalOptions(batch=2, workers=Workers())
    evaluation = task_data.evaluate(task, lambda inputs: inputs, options)
    regions, valid = seen[0]
    assert regions.shape[0] == 2
    assert valid.shape == regions.shape[:2]
    # The same images, one by one and with their regions: the same boxes.
    predict = DetectionData.predictor(config, task, lambda inputs: inputs)
    for record, image in zip(task_data.val, evaluation.images, strict=True):
        given = functools.partial(lambda boxes, _: boxes, near_objects(record))
        predictor = replace(predict, propose=given)
        (detections,), _ = predictor([predictor.prepare(DecodedImage(task_data.source.read(record)))])
        torch.testing.assert_close(detections.boxes, image.detections.boxes, rtol=1e-3, atol=0.01)
    assert all(len(inputs) == 2 for inputs in seen)


def test_the_contract(task_data: TaskData) -> None:
    check_all(task_data)


def check_all(task_data: TaskData) -> None:
    contract.check_settings(task_data)
    contract.check_report(task_data)
    task = contract.check_build(task_data)
    assert task_data.describe(task)
    batch = contract.check_stream(task_data)
    contract.check_losses(task, batch)
    contract.check_workload(task, task_data.largest_batch)
    contract.check_evaluation(task_data, task)
    assert task_data.digest() == task_data.digest()


@pytest.mark.parametrize("name", RECIPES.names())
def test_a_step_of_a_recipe_stays_on_its_device(
    name: str, tmp_path: Path, tiny_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optim, "FUSED_ON", set())
    config = RECIPES.get(name)()
    kind = TASKS.get(config.task.name)
    path = tiny_set if config.task.predicts == "boxes" else write_pictures(tmp_path)
    size: dict[str, Any] = {"size": 28} if config.task.predicts == "images" else {}  # a GAN makes squares
    options = OpenOptions(data=DataConfig(path=str(path)), seed=0)
    if isinstance(config.task, DetectionConfig) and isinstance(config.task.detector, ProposalConfig):
        size = {"detector": config.task.detector.model_copy(update={"proposal_method": "fast"})}
    opened = kind.open(config.task.model_copy(update=size), options)
    check_devices(opened.task(), opened.largest_batch(2), lambda task: optim.optimizer_of(task, config.optim))


def test_data_of_another_kind_is_refused(tmp_path: Path) -> None:
    place = write_table(tmp_path / "data.csv")
    kind = TASKS.get("gan")
    with pytest.raises(DataError, match="holds numbers; this task needs images"):
        kind.open(
            kind.config_class.of({"name": "gan"}), OpenOptions(data=DataConfig(path=str(place)), seed=0)
        )


@pytest.mark.parametrize("name", ["classification", "sequence"])
def test_one_class_is_nothing_to_tell_apart(tmp_path: Path, name: str) -> None:
    folder = write_pictures(tmp_path)
    for file in (folder / "light").iterdir():
        file.write_bytes(b"\x89PNG")
    kind = TASKS.get(name)
    with pytest.raises(DataError, match="only one class to train on: 'dark'") as raised:
        kind.open(
            kind.config_class.of({"name": name}), OpenOptions(data=DataConfig(path=str(folder)), seed=0)
        )
    assert "light/" in raised.value.advice
