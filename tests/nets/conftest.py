"""Weights and photos that stand beside the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def mobilenet_file(shared_data: Path) -> Path:
    """ImageNet weights of MobileNetV2's convolutions under torchvision's names."""
    file = shared_data.parent / "weights" / "mobilenet_v2_imagenet_features.pth"
    if not file.is_file():
        pytest.skip(f"needs {file.name}, looked for in {file.parent}")
    return file
