"""Every registered detector keeps its promises."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from boxcrew.core.types import Batch
from boxcrew.detectors import DETECTORS, DetectorNet, build_detector
from boxcrew.testing import detectors as contract
from tests.helpers import two_headed

NAMES = [*DETECTORS.names(), two_headed.NAME]


@pytest.fixture(scope="module", autouse=True)
def _toy() -> Iterator[None]:
    with two_headed.registered():
        yield


@pytest.fixture(scope="module", params=NAMES)
def detector(request: pytest.FixtureRequest) -> DetectorNet:
    torch.manual_seed(0)
    return build_detector(contract.quick_config(request.param), contract.CLASSES)


@pytest.fixture(scope="module")
def batch(detector: DetectorNet) -> Batch:
    """Two images, the second without objects."""
    return contract.noise_batch(detector.config.size, (4, 0))


@pytest.mark.parametrize("name", NAMES)
def test_settings(name: str) -> None:
    contract.check_settings(name)


def test_forward_decode_and_state(detector: DetectorNet, batch: Batch) -> None:
    raw = contract.check_forward(detector, batch.inputs)
    contract.check_decode(detector, raw)
    contract.check_state_is_complete(detector, batch.inputs[:1], raw)


def test_any_split(detector: DetectorNet, batch: Batch) -> None:
    contract.check_any_split(detector, batch)


def test_draws(detector: DetectorNet, batch: Batch) -> None:
    contract.check_draws(detector, batch)


def test_gradients(detector: DetectorNet, batch: Batch) -> None:
    contract.check_gradients(detector, batch.split([1, 1])[0])


def test_names(detector: DetectorNet) -> None:
    contract.check_names(detector)
