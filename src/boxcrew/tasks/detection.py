"""Training a detector."""

from __future__ import annotations

from boxcrew.core.types import Batch, Losses
from boxcrew.detectors.base import DetectorNet
from boxcrew.tasks.base import Task


class DetectionTask(Task):
    def __init__(self, detector: DetectorNet) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase in self.phases
        return self.detector.losses(batch)
