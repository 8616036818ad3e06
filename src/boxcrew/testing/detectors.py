"""Contract tests of detectors, to be called for each name of the registry."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from boxcrew.core.errors import UsageError
from boxcrew.core.input_size import Extent
from boxcrew.core.types import Batch, Losses, PaddedDetections
from boxcrew.detectors import DETECTORS, DetectorConfig, DetectorNet, build_detector, input_hw
from boxcrew.tasks.detection import DetectionTask
from boxcrew.tasks.detection_inputs import largest_batch
from boxcrew.testing.task_data import check_workload

CLASSES = ("tea pot", "Kanne", "茶")
BACKBONE = "test_efficientnet"
"""timm's own for tests: convolutions, depthwise ones too, BatchNorms, strides up to 32, and few layers."""
NUM_REGIONS = 24  # of an image, at most


def quick_config(name: str, size: str = "96") -> DetectorConfig:
    """Return the default settings of a detector, with a backbone of few layers and a small input where it
    accepts them.
    """
    config_class = DETECTORS.get(name).config_class
    config = config_class.of({"name": name})
    for quick in ({"backbone": BACKBONE}, {"size": size}):
        with suppress(UsageError):
            config = config_class.of({**config.tree(), **quick})
    return config


def quick_inputs(name: str) -> Iterator[tuple[DetectorConfig, Extent]]:
    """Yield small settings for each kind of input that a detector takes: a square, several squares, and a
    short side with a limit. With each comes every (width, height) that its inputs may have.
    """
    kind = DETECTORS.get(name).config_class
    sizes = ["96"]
    sizes += ["64,96"] if kind.takes_several_sizes else []
    sizes += ["64:96"] if kind.takes_any_shape else []
    for size in sizes:
        config = quick_config(name, size)
        images = [(40, 30)] if config.size.limit is None else [(40, 30), (30, 40)]
        for index in range(len(config.size.sides)):
            yield from ((config, config.size.at(index).canvas([image])) for image in images)


def noise_batch(canvas: Extent, num_objects: tuple[int, ...], *, seed: int = 0) -> Batch:
    """Return images of noise of a (width, height) with these numbers of objects, from 3 px wide to half the
    image.
    """
    draw = torch.Generator().manual_seed(seed)
    shape = (len(num_objects), max(1, *num_objects))
    boxes = _random_boxes(canvas, shape, draw)
    labels = torch.randint(0, len(CLASSES), shape, generator=draw)
    padding = torch.arange(shape[1]) >= torch.tensor(num_objects)[:, None]
    images = torch.randint(0, 256, (shape[0], 3, *canvas[::-1]), dtype=torch.uint8, generator=draw)
    return Batch(
        inputs=images,
        draws=torch.randint(1 << 62, shape[:1], generator=draw),
        targets={
            "boxes": boxes.masked_fill(padding[..., None], 0),
            "labels": labels.masked_fill(padding, -1),
            "difficult": torch.zeros(shape, dtype=torch.bool),
        },
        keys=tuple(f"noise{i}" for i in range(shape[0])),
    )


def _random_boxes(canvas: Extent, shape: tuple[int, int], draw: torch.Generator) -> Tensor:
    limits = torch.tensor(canvas)
    sides = 3 + torch.rand(*shape, 2, generator=draw) * (limits / 2 - 3)
    low = torch.rand(*shape, 2, generator=draw) * (limits - sides)
    return torch.cat((low, low + sides), dim=-1)


def with_regions(batch: Batch, config: DetectorConfig) -> Batch:
    """Return the batch with random regions, some of them invalid, if the detector takes any; the objects
    themselves are regions too, a little moved, so that some are positive.
    """
    if not config.num_regions:
        return batch
    height, width = input_hw(batch.inputs)
    shape = (len(batch), min(config.num_regions, NUM_REGIONS))
    boxes = _random_boxes((width, height), shape, torch.Generator().manual_seed(1))
    objects = batch.targets["boxes"] + torch.tensor([0.0, 0.0, 1.0, 1.0])
    regions = torch.cat((boxes, objects), dim=1).clamp(min=0, max=min(width, height))
    valid = torch.cat((torch.ones(shape, dtype=torch.bool), batch.targets["labels"] >= 0), dim=1)
    valid[0, 0] = False
    regions = regions.masked_fill(~valid[..., None], 0)
    return replace(batch, extra={"regions": regions, "regions_valid": valid})


def check_settings(name: str) -> None:
    """Check that name, settings and class belong together, and that settings survive being written."""
    config = quick_config(name)
    assert config.name == name
    assert type(config).of(config.tree()) == config
    detector = build_detector(config, CLASSES)
    assert type(detector) is DETECTORS.get(name)
    assert detector.config == config
    assert detector.classes == CLASSES


def check_forward(detector: DetectorNet, batch: Batch) -> tuple[Tensor, ...]:
    """Check that `forward` returns float tensors with a row for each image, and return them.
    Bytes and floats give the same. An image alone and in a batch has the same numbers, in any order: what
    is sorted (proposals by score) may swap places by rounding.
    """
    detector.eval()
    images, extra = batch.inputs, list(batch.extra.values())
    before, first_extra = images.clone(), [values[:1] for values in extra]
    with torch.no_grad():
        raw = detector(images, *extra)
        alone = detector(images[:1], *first_extra)
        alone_of_floats = detector(images[:1].float(), *first_extra)
    assert isinstance(raw, tuple)
    for batched, first, of_floats in zip(raw, alone, alone_of_floats, strict=True):
        assert batched.is_floating_point()
        assert len(batched) == len(images)
        assert batched.isfinite().all()
        torch.testing.assert_close(first, of_floats)
        _require_same_numbers(batched[0], first[0])
    assert torch.equal(images, before)
    return raw


def _require_same_numbers(first: Tensor, second: Tensor) -> None:
    """Require that nearly all numbers agree when sorted: rounding may also replace a candidate or two."""
    assert first.shape == second.shape
    distance = (first.flatten().sort().values - second.flatten().sort().values).abs()
    assert (distance <= 1e-3 * first.abs().max()).float().mean() >= 0.99


def check_decode(detector: DetectorNet, raw: tuple[Tensor, ...], size: tuple[int, int]) -> None:
    """Check that detections respect the (height, width) of the images, the classes and the settings; `raw`
    is not changed.
    """
    before = [numbers.clone() for numbers in raw]
    padded = detector.decode(raw, size)
    assert all(torch.equal(was, now) for was, now in zip(before, raw, strict=True))
    config = detector.config
    _require_shapes(padded, len(raw[0]), config.max_detections)
    padding = ~padded.valid
    assert not (padding[:, :-1] & padded.valid[:, 1:]).any(), "padding before a detection"
    assert all(not values[padding].any() for values in (padded.boxes, padded.scores, padded.labels))
    for image in padded.unpad():
        assert len(image.boxes) == len(image.scores) == len(image.labels) <= config.max_detections
        assert image.boxes.shape == (len(image), 4)
        assert image.labels.dtype == np.int64
        assert ((image.labels >= 0) & (image.labels < len(detector.classes))).all()
        assert ((image.scores >= config.score_threshold) & (image.scores <= 1)).all()
        assert (np.diff(image.scores) <= 0).all()
        assert ((image.boxes >= 0) & (image.boxes <= np.array(size[::-1] * 2))).all()
        assert (image.boxes[:, :2] <= image.boxes[:, 2:]).all()


def _require_shapes(padded: PaddedDetections, num_images: int, most: int) -> None:
    assert padded.boxes.shape == (num_images, most, 4)
    assert padded.scores.shape == padded.labels.shape == padded.valid.shape == (num_images, most)
    assert padded.valid.dtype == torch.bool


def check_without_data(detector: DetectorNet) -> None:
    """Check that planning can trace a step, and that `decode` has its shapes without data too."""
    canvas = detector.config.size.canvas([(40, 30)])
    num_regions = min(detector.config.num_regions, NUM_REGIONS) or None
    make_batch = partial(largest_batch, canvas=canvas, num_objects=4, num_regions=num_regions)
    check_workload(DetectionTask(detector), make_batch)
    bare, batch = copy.deepcopy(detector).to("meta").eval(), make_batch(2).to("meta")
    with torch.no_grad():
        raw = bare(batch.inputs, *batch.extra.values())
        padded = bare.decode(raw, canvas[::-1])
    _require_shapes(padded, 2, detector.config.max_detections)


def check_any_split(detector: DetectorNet, batch: Batch) -> None:
    """Check that the losses of a batch and their gradients (float64, of all but the backbone) are the sums
    of those of its parts, however it is split and padded, and that computing them does not change the batch.

    `batch` has at least two images, one of them with objects.
    """
    exact = copy.deepcopy(detector).double()
    batch_before = copy.deepcopy(batch)
    num = len(batch)
    total, gradients = _sums(exact, [batch])
    assert total.weight.ndim == 0
    assert float(total.weight) > 0
    assert all(value.ndim == 0 for value in total.terms.values())
    for sizes in {(1,) * num, (1, num - 1), (num - (num + 1) // 3, (num + 1) // 3)}:
        split_total, split_gradients = _sums(exact, [_less_padded(part) for part in batch.split(sizes)])
        _require_close(split_total.weight, total.weight, f"weight in parts {sizes}")
        for name, value in total.terms.items():
            _require_close(split_total.terms[name], value, f"{name} in parts {sizes}")
        for name, gradient in gradients.items():
            _require_close(split_gradients[name], gradient, f"the gradient of {name} in parts {sizes}")
    assert torch.equal(batch.inputs, batch_before.inputs)
    assert all(torch.equal(batch.targets[name], value) for name, value in batch_before.targets.items())


def _sums(exact: DetectorNet, parts: Sequence[Batch]) -> tuple[Losses, dict[str, Tensor]]:
    _set_learning(exact)
    prefix = exact.backbone_prefix()
    learning = {
        name: value
        for name, value in exact.named_parameters()
        if prefix is None or not name.startswith(prefix)
    }
    exact.zero_grad(set_to_none=True)
    added: Losses | None = None
    for part in parts:
        losses = exact.losses(part)
        gradients = torch.autograd.grad(losses.total(), list(learning.values()), allow_unused=True)
        for parameter, gradient in zip(learning.values(), gradients, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        added = losses.detach() if added is None else added + losses.detach()
    assert added is not None
    return added, {name: value.grad for name, value in learning.items() if value.grad is not None}


def _set_learning(detector: DetectorNet) -> None:
    """Let the detector itself be in training mode, in which it may choose what to learn from, but none of its
    layers: BatchNorms see the whole batch, and dropout has randomness of its own.
    """
    detector.eval()
    detector.training = True


def _less_padded(part: Batch) -> Batch:
    """Return the batch padded to as many objects as it has, as if it had been made alone."""
    width = max(1, int((part.targets["labels"] >= 0).sum(dim=1).max()))
    return replace(part, targets={name: value[:, :width] for name, value in part.targets.items()})


def _require_close(value: Tensor, wanted: Tensor, name: str) -> None:
    scale = float(wanted.abs().max())
    torch.testing.assert_close(
        value, wanted, rtol=1e-10, atol=1e-10 * scale, msg=lambda reason: f"{name}: {reason}"
    )


def check_draws(detector: DetectorNet, batch: Batch) -> None:
    """Check that what is random in the losses comes from each sample's own draw: torch's generator is not
    used, a second call gives the same, and so does another order of the samples.
    """
    _set_learning(detector)
    state = torch.get_rng_state()
    with torch.no_grad():
        losses, again, reordered = (
            detector.losses(samples)
            for samples in (batch, batch, batch.select(range(len(batch) - 1, -1, -1)))
        )
    assert torch.equal(torch.get_rng_state(), state), "the losses draw from torch's generator"
    for name, value in losses.terms.items():
        assert torch.equal(again.terms[name], value), f"{name} differs in a second call"
        torch.testing.assert_close(reordered.terms[name], value, rtol=1e-3, atol=1e-3)


def check_gradients(detector: DetectorNet, batch: Batch) -> None:
    """Check that in training every parameter gets a finite gradient from a batch with objects."""
    detector.train()
    named = dict(detector.named_parameters())
    gradients = torch.autograd.grad(detector.losses(batch).total(), list(named.values()), allow_unused=True)
    for name, gradient in zip(named, gradients, strict=True):
        assert gradient is not None, f"{name} is not used"
        assert gradient.isfinite().all(), f"{name} has a gradient that is not finite"


def check_names(detector: DetectorNet) -> None:
    """Check the state names that fine-tuning relies on."""
    state = detector.state_dict()
    rows = detector.class_tensors()
    assert rows
    for name, layout in rows.items():
        assert len(state[name]) == layout.count(len(detector.classes)), name
    prefix = detector.backbone_prefix()
    if prefix is not None:
        inside = [name for name, _ in detector.named_parameters() if name.startswith(prefix)]
        assert 0 < len(inside) < len(list(detector.parameters()))
        assert not any(name.startswith(prefix) for name in rows)
    mean, std = detector.expected_normalization()
    assert len(mean) == len(std) == 3
    assert {"normalize.mean", "normalize.std"} <= state.keys()
    converted = detector.convert_foreign(state)
    assert all(converted[name] is value for name, value in state.items()), "its own state is not foreign"


def check_state_is_complete(detector: DetectorNet, batch: Batch, raw: tuple[Tensor, ...]) -> None:
    """Check that another detector with the same settings and state gives the same outputs for a batch."""
    copy = build_detector(detector.config, detector.classes)
    copy.load_state_dict(detector.state_dict(), strict=True)
    with torch.no_grad():
        again = copy.eval()(batch.inputs, *batch.extra.values())
    for first, second in zip(raw, again, strict=True):
        torch.testing.assert_close(first, second)


@dataclass(frozen=True)
class _Twice:
    """Training images for `solve`: each pass yields the same batch twice, with other keys the second time."""

    batch: Batch

    def __iter__(self) -> Iterator[Batch]:
        second = replace(self.batch, keys=tuple(f"again {key}" for key in self.batch.keys))
        yield from (self.batch, second)

    def __len__(self) -> int:
        return 2 * len(self.batch)


def check_stages(detector: DetectorNet, batch: Batch) -> None:
    """Check that stages have names and fractions that a run can have, and that a solve stage sets the same
    state twice: finite values, in tensors of the network.
    """
    stages = detector.config.stages()
    assert len({stage.name for stage in stages}) == len(stages)
    assert sum(stage.fraction for stage in stages) <= 1 + 1e-9
    for name in [stage.name for stage in stages if stage.kind == "solve"]:
        solved = [copy.deepcopy(detector).eval() for _ in range(2)]
        for each in solved:
            with torch.no_grad(), TemporaryDirectory() as folder:
                each.solve(name, _Twice(batch), Path(folder))
        first, second = (each.state_dict() for each in solved)
        before = detector.state_dict()
        assert {key: value.shape for key, value in first.items()} == {
            key: value.shape for key, value in before.items()
        }
        assert any(not torch.equal(value, before[key]) for key, value in first.items()), (
            f"{name} sets nothing"
        )
        assert all(torch.equal(value, second[key]) for key, value in first.items()), f"{name} differs"
        assert all(value.isfinite().all() for value in first.values()), f"{name} sets what is not finite"
