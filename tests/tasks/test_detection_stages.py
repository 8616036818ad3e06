"""A detector alone gives a training its stages: detection passes them on, and the images to solve from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from boxcrew.core.errors import DataError
from boxcrew.core.types import Batch, Floats, Target
from boxcrew.data.detection.records import Record, Records
from boxcrew.data.detection.source import open_source
from boxcrew.data.detection.writers import write_source
from boxcrew.data.images.source_image import EncodedImage
from boxcrew.data.loading.collate import stack_images
from boxcrew.data.loading.workers import Workers
from boxcrew.data.transforms.pipeline import TransformsConfig
from boxcrew.detectors import ImageBatches
from boxcrew.tasks.data import SolveOptions
from boxcrew.tasks.detection import DetectionConfig, DetectionData, DetectionTask
from boxcrew.train.config import RunConfig
from tests.helpers import staged_detector
from tests.helpers.staged_detector import RidgeHeaded, RidgeHeadedConfig

CONFIG = DetectionConfig(
    detector=RidgeHeadedConfig(), transforms=TransformsConfig(resize="letterbox", color=2.0)
)
NUM = 7


@pytest.fixture(autouse=True)
def _toy() -> Iterator[None]:
    with staged_detector.registered():
        yield


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = open_source("shelf")
    source.splits = {"train": source.split("train")[:NUM], "val": source.split("val")[:2]}
    folder = tmp_path_factory.mktemp("photos") / "set"
    write_source(source, folder, format="voc")
    return folder


@pytest.fixture
def task_data(photos: Path) -> DetectionData:
    return DetectionData.of(CONFIG, open_source(str(photos)))


@dataclass
class Recorder:
    """What a detector is given in two passes over the images."""

    passes: list[list[Batch]] = field(default_factory=list)
    progress: list[int] = field(default_factory=list)
    skipped: tuple[str, ...] = ()


Observe = Callable[..., Recorder]


@pytest.fixture
def observe(monkeypatch: pytest.MonkeyPatch) -> Observe:
    """`(task_data, batch=3, workers=0)`"""

    def run(task_data: DetectionData, *, batch: int = 3, workers: int = 0) -> Recorder:
        recorder = Recorder()

        def solve(self: RidgeHeaded, stage: str, batches: ImageBatches, workspace: Path) -> None:
            assert stage == "ridge"
            recorder.passes = [list(batches), list(batches)]

        monkeypatch.setattr(RidgeHeaded, "solve", solve)
        options = SolveOptions(
            batch=batch,
            workers=Workers(num=workers),
            progress=recorder.progress.append,
            workspace=Path(),
        )
        recorder.skipped = task_data.solve(task_data.task(), "ridge", options)
        return recorder

    return run


def test_the_stages_of_a_detector_are_those_of_its_training() -> None:
    assert DetectionConfig().stages() == ()
    assert [stage.name for stage in CONFIG.stages()] == ["features", "ridge"]
    config = RunConfig.of({"detector": {"name": staged_detector.NAME, "tuned": True}, "steps": 4})
    assert [stage.name for stage in config.task.stages()] == ["features", "ridge", "tune"]


def require_same(first: Batch, second: Batch) -> None:
    assert first.keys == second.keys
    assert torch.equal(first.inputs, second.inputs)
    assert torch.equal(first.draws, second.draws)
    for ours, theirs in ((first.targets, second.targets), (first.extra, second.extra)):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


def test_passes_are_all_the_same(task_data: DetectionData, observe: Observe) -> None:
    """In the order of the records, also with loader processes."""
    alone, with_workers = observe(task_data), observe(task_data, workers=2)
    assert [len(batch) for batch in alone.passes[0]] == [3, 3, 1]
    keys = [key for batch in alone.passes[0] for key in batch.keys]
    assert keys == [each.key for each in task_data.train]
    draws = torch.cat([batch.draws for batch in alone.passes[0]])
    assert len(set(draws.tolist())) == NUM
    assert alone.progress == [3, 6, 7, 3, 6, 7]
    assert alone.skipped == ()
    for batches in (alone.passes[1], *with_workers.passes):
        for first, second in zip(alone.passes[0], batches, strict=True):
            require_same(first, second)


def test_images_are_those_of_an_evaluation(task_data: DetectionData, observe: Observe) -> None:
    """Without augmentation; targets are in pixels of the input."""
    (batch,) = observe(task_data, batch=NUM).passes[0]
    predictor = task_data.predictor(CONFIG, task_data.task(), lambda inputs: inputs)
    files = [EncodedImage(Path(str(each.path)).read_bytes()) for each in task_data.train]
    prepared = [predictor.prepare(file) for file in files]
    assert torch.equal(batch.inputs, stack_images([image.pixels for image in prepared]))
    for i, (each, view) in enumerate(zip(task_data.train, [image.view for image in prepared], strict=True)):
        valid = batch.targets["labels"][i] >= 0
        assert batch.targets["labels"][i][valid].tolist() == each.target.labels.tolist()
        original = view.inverse_boxes(batch.targets["boxes"][i][valid].numpy())
        np.testing.assert_allclose(original, each.target.boxes, atol=0.01)


def middle(record: Record) -> Floats:
    """Two regions of every image."""
    w, h = record.width, record.height
    return np.array([[0, 0, w / 2, h], [w / 4, h / 4, w / 2, h / 2]], dtype=np.float32)


def test_regions_come_with_them(task_data: DetectionData, observe: Observe) -> None:
    (batch,) = observe(replace(task_data, regions=middle), batch=NUM).passes[0]
    assert list(batch.extra) == ["regions", "regions_valid"]
    assert batch.extra["regions"].shape == (NUM, 2, 4)
    assert batch.extra["regions_valid"].all()
    assert (batch.extra["regions"] <= CONFIG.detector.size.square).all()


def test_an_image_that_cannot_be_read_is_left_out_and_named(
    task_data: DetectionData, observe: Observe, tmp_path: Path
) -> None:
    lost = replace(task_data.train[3], path=tmp_path / "lost.jpg")
    recorder = observe(
        replace(task_data, train=Records.of([*task_data.train[:3], lost, *task_data.train[4:]]))
    )
    for batches in recorder.passes:
        assert sum(len(batch) for batch in batches) == NUM - 1
        assert lost.key not in {key for batch in batches for key in batch.keys}
    (message,) = recorder.skipped
    assert "lost.jpg" in message
    with pytest.raises(DataError, match="none of the 1 images"):
        observe(replace(task_data, train=Records.of([lost])))


@pytest.mark.parametrize("regions", [None, middle])
def test_the_class_layer_is_the_ridge_on_the_features(
    task_data: DetectionData, regions: Callable[[Record], Floats] | None
) -> None:
    """Without a penalty the gradient of the squares would be zero; with it, it is that of the penalty."""
    task_data = replace(task_data, regions=regions)
    torch.manual_seed(0)
    task = task_data.task().eval()
    detector = task.network
    assert isinstance(task, DetectionTask)
    assert isinstance(detector, RidgeHeaded)
    before = {name: value.clone() for name, value in detector.state_dict().items()}
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    original = detector._examples

    def examples(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append(original(batch))
        return seen[-1]

    detector._examples = examples  # type: ignore[method-assign]
    with torch.no_grad():
        task_data.solve(task, "ridge", SolveOptions(batch=2, workers=Workers(), workspace=Path()))
    features, wanted = (torch.cat(each) for each in zip(*seen[: len(seen) // 2], strict=True))
    assert int(detector.num_solved) == len(features)
    assert bool(detector.is_solved)
    weight, bias = detector.scores.weight.detach().double(), detector.scores.bias.detach().double()
    left = features @ weight.T + bias - wanted
    gradient = (features - features.mean(dim=0)).T @ left + staged_detector.RIDGE * weight.T
    assert gradient.abs().max() < 1e-3
    assert left.mean(dim=0).abs().max() < 1e-5
    changed = {name for name, value in detector.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"scores.weight", "scores.bias", "num_solved", "is_solved"}


def test_a_detector_without_that_stage(task_data: DetectionData) -> None:
    plain = replace(task_data, config=DetectionConfig())
    with pytest.raises(NotImplementedError, match="ssdlite has no solve stage svm"):
        plain.solve(plain.task(), "svm", SolveOptions(batch=1, workers=Workers(), workspace=Path()))


def test_targets_without_objects(photos: Path, observe: Observe) -> None:
    source = open_source(str(photos))
    bare = replace(source.split("train")[0], target=Target.of([], []))
    task_data = replace(DetectionData.of(CONFIG, source), train=Records.of([bare]))
    (batch,) = observe(task_data).passes[0]
    assert batch.targets["labels"].tolist() == [[-1]]
