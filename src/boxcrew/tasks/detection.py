"""Training a detector."""

from __future__ import annotations

import numpy as np

from boxcrew.core.types import Batch, Losses, Sample, Target
from boxcrew.data.collate import collate
from boxcrew.detectors.base import DetectorNet
from boxcrew.tasks.base import Task


class DetectionTask(Task):
    def __init__(self, detector: DetectorNet) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase in self.phases
        return self.detector.losses(batch)


def largest_batch(num_samples: int, *, size: int, num_objects: int) -> Batch:
    """Black squares of that side, each with as many objects."""
    image = np.zeros((size, size, 3), dtype=np.uint8)
    target = Target.of([[0, 0, size, size]] * num_objects, [0] * num_objects)
    return collate([Sample(image=image, target=target, key="")] * num_samples)
