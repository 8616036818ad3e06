"""Every registered detector keeps its promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from boxcrew.core.input_size import Extent
from boxcrew.core.types import Batch, Losses, PaddedDetections
from boxcrew.detectors import DETECTORS, DetectorConfig, DetectorNet, ImageBatches, build_detector, input_hw
from boxcrew.detectors.ssdlite import SsdLite, SsdLiteConfig
from boxcrew.nets.network import ClassRows
from boxcrew.tasks.detection import DetectionTask
from boxcrew.testing import detectors as contract
from boxcrew.testing.devices import check_devices
from tests.helpers import staged_detector, two_headed
from tests.helpers.narrow import narrow_if_large
from tests.helpers.staged_detector import RidgeHeaded, RidgeHeadedConfig

NAMES = [*DETECTORS.names(), two_headed.NAME, staged_detector.NAME]


@pytest.fixture(scope="module", autouse=True)
def _toy() -> Iterator[None]:
    with two_headed.registered(), staged_detector.registered():
        yield


def inputs() -> list[Any]:
    """Return every kind of input of every detector: its settings, and a (width, height)."""
    with two_headed.registered(), staged_detector.registered():
        return [
            pytest.param(pair, id=f"{name}-{pair[0].size}-{pair[1][0]}x{pair[1][1]}")
            for name in NAMES
            for pair in contract.quick_inputs(name)
        ]


def largest(param: Any) -> Extent:
    """Return the largest input of the settings of one of `inputs`, that of a wide image."""
    config: DetectorConfig = param.values[0][0]
    return config.size.canvas([(40, 30)])


@pytest.fixture(scope="module", params=inputs())
def detector_input(request: pytest.FixtureRequest) -> tuple[DetectorConfig, Extent]:
    pair: tuple[DetectorConfig, Extent] = request.param
    return pair


def build(config: DetectorConfig) -> DetectorNet:
    torch.manual_seed(0)
    with narrow_if_large(config):
        return build_detector(config, contract.CLASSES)


@pytest.fixture(scope="module")
def detector(detector_input: tuple[DetectorConfig, Extent]) -> DetectorNet:
    return build(detector_input[0])


@pytest.fixture(scope="module", params=[each for each in inputs() if each.values[0][1] == largest(each)])
def sized_detector(request: pytest.FixtureRequest) -> DetectorNet:
    """A detector with each of its settings once, for what does not depend on the input of a step."""
    return build(request.param[0])


@pytest.fixture(scope="module")
def batch(detector_input: tuple[DetectorConfig, Extent]) -> Batch:
    """Two images, the second without objects."""
    return contract.with_regions(contract.noise_batch(detector_input[1], (4, 0)), detector_input[0])


@pytest.mark.parametrize("name", NAMES)
def test_settings(name: str) -> None:
    contract.check_settings(name)


def test_forward_decode_and_state(detector: DetectorNet, batch: Batch) -> None:
    raw = contract.check_forward(detector, batch)
    contract.check_decode(detector, raw, input_hw(batch.inputs))
    with narrow_if_large(detector.config):
        contract.check_state_is_complete(detector, batch, raw)


def test_any_split(detector: DetectorNet, batch: Batch) -> None:
    contract.check_any_split(detector, batch)


def test_draws(detector: DetectorNet, batch: Batch) -> None:
    contract.check_draws(detector, batch)


def test_gradients(detector: DetectorNet, batch: Batch) -> None:
    contract.check_gradients(detector, batch.split([1, 1])[0])


def test_names(sized_detector: DetectorNet) -> None:
    contract.check_names(sized_detector)


def test_without_data(sized_detector: DetectorNet) -> None:
    contract.check_without_data(sized_detector)


def test_devices(detector: DetectorNet, batch: Batch) -> None:
    check_devices(DetectionTask(detector), batch)


def test_stages(detector: DetectorNet, batch: Batch) -> None:
    contract.check_stages(detector, batch)


# --- Contracts can fail ----------------------------------------------------------------------------------


class MixesImages(SsdLite):
    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        scores, offsets = super().forward(images)
        return scores - scores.mean(dim=0), offsets


class MasksBoxes(SsdLite):
    """Returns as many detections as there are."""

    def decode(self, raw: tuple[Tensor, ...], size: tuple[int, int]) -> PaddedDetections:
        padded = super().decode(raw, size)
        used = padded.valid.any(dim=0)
        return PaddedDetections(**{name: value[:, used] for name, value in vars(padded).items()})


class PadsFirst(SsdLite):
    def decode(self, raw: tuple[Tensor, ...], size: tuple[int, int]) -> PaddedDetections:
        padded = super().decode(raw, size)
        return PaddedDetections(**{name: value.flip(1) for name, value in vars(padded).items()})


class ForgetsDevice(SsdLite):
    def losses(self, batch: Batch) -> Losses:
        losses = super().losses(batch)
        importance = torch.ones(len(batch))  # on the CPU, wherever the batch is
        return replace(losses, terms={**losses.terms, "more": (importance * batch.inputs[:, 0, 0, 0]).sum()})


class KeepsConstant(SsdLite):
    """Has a tensor that is no buffer, which therefore does not move with the network."""

    def __init__(self, config: SsdLiteConfig, classes: tuple[str, ...]) -> None:
        super().__init__(config, classes)
        self.size_limits = torch.tensor([0.0, config.size.square])

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        scores, offsets = super().forward(images)
        return scores, offsets + self.size_limits.sum()


class ReadsValue(SsdLite):
    def losses(self, batch: Batch) -> Losses:
        losses = super().losses(batch)
        assert losses.weight.item() >= 0
        return losses


class WrongRows(SsdLite):
    def class_tensors(self) -> dict[str, ClassRows]:
        return dict.fromkeys(super().class_tensors(), ClassRows(blocks=2, shared=1))


class SolvesByChance(RidgeHeaded):
    def solve(self, stage: str, batches: ImageBatches, workspace: Path) -> None:
        super().solve(stage, batches, workspace)
        self.scores.weight.add_(torch.randn_like(self.scores.weight))


class SolvesNothing(RidgeHeaded):
    def solve(self, stage: str, batches: ImageBatches, workspace: Path) -> None: ...


def toy(kind: type[SsdLite]) -> SsdLite:
    return kind(SsdLiteConfig(size=64, backbone=contract.BACKBONE, levels=2), contract.CLASSES)


def fails(check: Callable[[], object]) -> str:
    with pytest.raises((AssertionError, RuntimeError)) as raised:
        check()
    return str(raised.value)


def test_an_image_that_depends_on_others_is_noticed() -> None:
    batch = contract.noise_batch((64, 64), (1, 1))
    contract.check_forward(toy(SsdLite), batch)
    fails(lambda: contract.check_forward(toy(MixesImages), batch))


def check_padding(kind: type[SsdLite]) -> None:
    """Decode scores of which only every fiftieth box has enough."""
    detector = toy(kind)
    detector.config = detector.config.model_copy(update={"score_threshold": 0.3})
    scores = torch.zeros(2, len(detector.anchors), 1 + len(contract.CLASSES))
    scores[:, ::50, 0] = -3
    contract.check_decode(detector, (scores, torch.zeros(2, len(detector.anchors), 4)), (64, 64))


def test_wrong_padding_is_noticed() -> None:
    check_padding(SsdLite)
    fails(lambda: check_padding(MasksBoxes))
    assert "padding before a detection" in fails(lambda: check_padding(PadsFirst))


def test_decoding_that_needs_data_is_noticed() -> None:
    contract.check_without_data(toy(SsdLite))
    fails(lambda: contract.check_without_data(toy(MasksBoxes)))


def test_wrong_rows_of_classes_are_noticed() -> None:
    contract.check_names(toy(SsdLite))
    fails(lambda: contract.check_names(toy(WrongRows)))


def test_forgotten_devices_and_read_values_are_noticed() -> None:
    batch = contract.noise_batch((64, 64), (2, 0))
    check_devices(DetectionTask(toy(SsdLite)), batch)
    assert "device" in fails(lambda: check_devices(DetectionTask(toy(ForgetsDevice)), batch))
    fails(lambda: check_devices(DetectionTask(toy(KeepsConstant)), batch))
    assert "_local_scalar_dense" in fails(lambda: check_devices(DetectionTask(toy(ReadsValue)), batch))


def test_stages_that_are_solved_by_chance_or_not_at_all_are_noticed() -> None:
    batch = contract.noise_batch((64, 64), (2, 1))
    chance, nothing = (
        kind(RidgeHeadedConfig(), contract.CLASSES) for kind in (SolvesByChance, SolvesNothing)
    )
    assert "ridge differs" in fails(lambda: contract.check_stages(chance, batch))
    assert "ridge sets nothing" in fails(lambda: contract.check_stages(nothing, batch))
