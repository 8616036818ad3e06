"""A service that the tests of this package share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from boxcrew.data.images.reading import encode_image
from tests.helpers.served import Served, served


@pytest.fixture(scope="session")
def photo() -> bytes:
    """A JPEG with something on it."""
    rng = np.random.default_rng(0)
    return encode_image(np.kron(rng.integers(0, 256, (6, 8, 3)), np.ones((60, 60, 1))).astype(np.uint8))


@pytest.fixture(scope="module")
def service(exported_run: Path) -> Iterator[Served]:
    """A service of an exported file."""
    with served(f"run={exported_run / 'model.onnx'}", "timeout=20") as running:
        yield running
        assert running.log("failure") == []
