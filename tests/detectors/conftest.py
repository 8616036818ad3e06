"""Detectors small enough for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from boxcrew.detectors.ssdlite import SsdLite, SsdLiteConfig
from boxcrew.testing.detectors import CLASSES


@pytest.fixture(scope="package", autouse=True)
def _few_threads() -> Iterator[None]:
    """Small networks gain nothing from many threads, and other tests may be running beside these."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(2, before))
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package")
def small() -> SsdLite:
    """A detector with three classes for 64 px images, in evaluation mode."""
    config = SsdLiteConfig(size=64, backbone="mobilenetv3_small_050", finest_stride=8, levels=4)
    detector = SsdLite(config, CLASSES)
    detector.eval()
    return detector
