"""The loss is the task's forward."""

from __future__ import annotations

import pytest
import torch

from boxcrew.detectors.ssdlite import SsdLite, SsdLiteConfig
from boxcrew.tasks.detection import DetectionTask
from boxcrew.testing.detectors import CLASSES, noise_batch


def test_the_tasks_forward_is_the_detectors_loss() -> None:
    detector = SsdLite(SsdLiteConfig(size=64, backbone="mobilenetv3_small_050"), CLASSES)
    task = DetectionTask(detector).eval()
    batch = noise_batch(64, (2, 1))
    with torch.no_grad():
        found, wanted = task(batch), detector.losses(batch)
    torch.testing.assert_close(dict(found.terms), dict(wanted.terms))
    assert {name for name, _ in task.named_parameters()} == {
        f"detector.{name}" for name, _ in detector.named_parameters()
    }
    with pytest.raises(AssertionError):
        task(batch, "generator")
