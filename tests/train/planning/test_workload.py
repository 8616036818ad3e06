"""The workload of a run, before its first step."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from boxcrew.core.types import Target
from boxcrew.core.workload import Workload
from boxcrew.data.detection.records import Records
from boxcrew.data.detection.source import open_source
from boxcrew.recipes import RECIPES
from boxcrew.tasks.base import Task
from boxcrew.tasks.detection import DetectionData, require_detection
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.optim import OptimConfig
from boxcrew.train.planning import workload as planning
from boxcrew.train.planning.workload import measure_inputs, measure_workload, num_slots
from tests.helpers.workloads import a_workload

OBJECT_BYTES = 4 * 4 + 8 + 1  # a box, its label, whether it is difficult
DRAW_BYTES = 8  # one integer a sample


@pytest.fixture(autouse=True)
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of stored workloads, empty at first."""
    monkeypatch.setattr(planning, "cache_folder", lambda name: tmp_path / name)
    return tmp_path / "workload"


@pytest.fixture
def data(tiny_set: Path) -> DetectionData:
    return open_data(tiny_set)


def open_data(folder: Path) -> DetectionData:
    return DetectionData.of(require_detection(SSD.task), open_source(folder))


def crowded(data: DetectionData, num_objects: int) -> DetectionData:
    """Return data with this many objects in one image."""
    first, *others = data.train
    whole = [0, 0, first.width, first.height]
    many = replace(first, target=Target.of([whole] * num_objects, [0] * num_objects))
    return replace(data, train=Records.of([many, *others]))


SSD = RECIPES.get("ssd300_vgg16")()  # of few layers, and so quickly accounted for


def task_of(config: RunConfig, data: DetectionData) -> Task:
    """Return the settings without their numbers."""
    with torch.device("meta"):
        return DetectionData.build(require_detection(config.task), data.facts).to("meta")


def account(config: RunConfig, data: DetectionData) -> Workload:
    data = replace(data, config=require_detection(config.task))
    return measure_workload(config, data, task_of(config, data))


@pytest.mark.parametrize(
    ("name", "slots"),
    [
        ("sgd", 0),
        ("momentum", 1),  # velocities
        ("nesterov", 1),
        ("adam", 2),  # means of gradients and of their squares
        ("adamw", 2),
        ("rmsprop", 2),  # squares, and velocities since it has momentum here
        ("adagrad", 1),  # squares
        ("adadelta", 2),  # squares of gradients and of moves
        ("ftrl", 2),  # z and n
    ],
)
def test_what_optimizers_keep(name: str, slots: int) -> None:
    assert num_slots(OptimConfig.of({"name": name})) == slots


def test_without_momentum_no_velocities_are_kept() -> None:
    for name, slots in (("momentum", 0), ("rmsprop", 1)):
        assert num_slots(OptimConfig.of({"name": name, "momentum": 0})) == slots


def test_a_run_in_bytes_and_seconds(data: DetectionData) -> None:
    workload = account(SSD, data)
    assert workload.parameters == workload.gradients == workload.optimizer  # momentum, all learns
    assert workload.model_bytes == workload.parameters + workload.buffers  # no averages
    assert workload.inputs is not None
    assert 0 < workload.inputs.cached_seconds <= workload.inputs.seconds < 1
    sizes = {3 * record.width * record.height for record in data.train}
    assert sizes == {workload.inputs.image_bytes}


def test_what_is_computed_again_is_looked_at_if_asked_for(data: DetectionData) -> None:
    task = task_of(SSD, data)
    assert measure_workload(SSD, data, task).with_recompute is None
    workload = measure_workload(SSD, data, task, recompute=True)
    assert workload.with_recompute is not None
    assert workload.with_recompute.activations.each < workload.without_recompute.activations.each
    assert workload.with_recompute.operations > workload.without_recompute.operations


def test_the_batch_is_of_images_with_as_many_objects_as_any_has(data: DetectionData) -> None:
    most = max(len(record.target) for record in data.train)
    few, many = account(SSD, data), account(SSD, crowded(data, 40))
    assert few.batch.each == 3 * 300 * 300 + DRAW_BYTES + most * OBJECT_BYTES
    assert many.batch.each == 3 * 300 * 300 + DRAW_BYTES + 40 * OBJECT_BYTES
    assert few.batch.fixed == many.batch.fixed == 0
    assert many.without_recompute.traffic > few.without_recompute.traffic  # of matching


def test_a_set_that_is_gone_is_not_measured(tiny_set: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    shutil.copytree(tiny_set, folder)
    data = open_data(folder)
    shutil.rmtree(folder)
    assert measure_inputs(SSD, data) is None
    workload = account(SSD, data)
    assert workload.inputs is None
    assert workload.without_recompute.activations.each > 0


@pytest.mark.parametrize(
    "num",
    [1, 3, 8, 9, 15, 16, 40],
)
def test_images_are_measured_whatever_their_number(data: DetectionData, num: int) -> None:
    first = data.train[0]
    records = Records.of(replace(first, key=f"{i}") for i in range(num))
    workload = measure_inputs(SSD, replace(data, train=records))
    assert workload is not None
    assert workload.image_bytes == 3 * first.width * first.height


def is_early(name: str) -> bool:
    body = name.removeprefix("detector.backbone.body.")
    return body.startswith(("conv_stem.", "bn1.", "blocks.0.", "blocks.1.", "blocks.2."))


def test_a_recipe_with_frozen_layers_has_fewer_gradients(data: DetectionData) -> None:
    """`ssdlite`: its early layers are never learned. Adam keeps two slots, and averages are kept of all."""
    small = {"detector": {"backbone": "mobilenetv3_small_050", "size": 64}}
    config = RECIPES.get("ssdlite")().changed(small)
    data = replace(data, config=require_detection(config.task))
    task = task_of(config, data)
    workload = measure_workload(config, data, task)
    sizes = {name: 4 * p.numel() for name, p in task.named_parameters()}
    assert workload.parameters == sum(sizes.values())
    assert workload.gradients == sum(size for name, size in sizes.items() if not is_early(name))
    assert workload.gradients < workload.parameters
    assert (workload.optimizer, workload.model_bytes) == (
        2 * workload.gradients,
        2 * (workload.parameters + workload.buffers),
    )
    assert all(p.requires_grad for p in task.parameters())  # the task itself is left as it is


def test_layers_that_join_later_count_from_the_beginning(data: DetectionData) -> None:
    heads = {"trainable": ["detector.class_heads*"]}
    alone = account(SSD.changed(heads), data)
    later = account(SSD.changed(heads | {"unfreeze": {0.5: ["*"]}}), data)
    assert alone.gradients < alone.parameters
    assert later.gradients == later.parameters
    assert alone.without_recompute.activations.each < later.without_recompute.activations.each


def test_what_was_worked_out_is_kept(
    data: DetectionData, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workloads = [a_workload(slots=slots) for slots in range(4)]
    turns = iter(workloads)
    monkeypatch.setattr(planning, "trace_workload", lambda *_, **__: next(turns))

    def ask(data: DetectionData = data, **changes: object) -> Workload:
        return account(SSD.changed(changes), data).model_copy(update={"inputs": workloads[0].inputs})

    assert ask() == ask() == ask(batch=3, seed=7) == workloads[0]
    assert ask(crowded(data, 40)) == workloads[1]
    assert ask(optim={"name": "adam"}) == ask(optim={"name": "adam"}) == workloads[2]
    assert ask() == workloads[0]
    for file in stored.iterdir():
        file.write_text("{")
    assert ask() == ask() == workloads[3]


def test_a_folder_that_cannot_be_written_to_is_no_obstacle(
    data: DetectionData, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "trace_workload", lambda *_, **__: a_workload())
    stored.write_text("not a folder")
    assert account(SSD, data).without_recompute == a_workload().without_recompute
