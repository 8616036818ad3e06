"""Settings that recipes of several families share."""

from __future__ import annotations

from boxcrew.data.transforms.pipeline import TransformsConfig
from boxcrew.train.loop.optim import OptimConfig

MILD = TransformsConfig(expand=1.0, crop=False, jitter=0.2)
"""Augmentation for a short run on few photos: it has no time to learn from strongly zoomed or mixed ones."""


def adamw(rate: float, *, backbone_rate: float, batch: int = 8) -> OptimConfig:
    """Return AdamW as fine-tuning uses it; the rates are those for steps of `batch` samples."""
    return OptimConfig(
        name="adamw",
        rate=rate,
        backbone_rate=backbone_rate,
        weight_decay=0.02,
        clip=10.0,
        ema=0.998,
        reference_batch=batch,
    )
