"""Samples of one shape joined into the tensors of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from boxcrew.core.types import Batch, Image, Sample
from boxcrew.data.examples.example_set import Array
from boxcrew.data.loading.extra_inputs import pad_extra


def collate(samples: Sequence[Sample], *, skipped: Sequence[str] = ()) -> Batch:
    """Return a batch of one or more samples. Crowd objects are left out: they are never training targets.

    `targets` holds `boxes` (B, M, 4), `labels` (B, M) with -1 as padding, and `difficult` (B, M); M is
    the largest number of objects, at least 1. `extra` is that of `stack_extra`.
    """
    targets = [sample.target.select(~sample.target.crowd) for sample in samples]
    shape = (len(samples), max(1, *(len(target) for target in targets)))
    boxes = np.zeros((*shape, 4), dtype=np.float32)
    labels = np.full(shape, -1, dtype=np.int64)
    difficult = np.zeros(shape, dtype=np.bool_)
    for row, target in enumerate(targets):
        boxes[row, : len(target)] = target.boxes
        labels[row, : len(target)] = target.labels
        difficult[row, : len(target)] = target.difficult
    return Batch(
        inputs=stack_images([sample.image for sample in samples]),
        targets={
            "boxes": torch.from_numpy(boxes),
            "labels": torch.from_numpy(labels),
            "difficult": torch.from_numpy(difficult),
        },
        keys=tuple(sample.key for sample in samples),
        skipped=tuple(skipped),
        draws=torch.tensor([sample.draw for sample in samples], dtype=torch.int64),
        extra=stack_extra([sample.extra for sample in samples]),
    )


def stack_images(images: Sequence[Image]) -> Tensor:
    """Return uint8 (B, 3, H, W), in channels-last memory like the images, so that nothing is moved twice."""
    return as_tensor(np.stack(images))


def stack_extra(extras: Sequence[Mapping[str, npt.NDArray[Any]]]) -> dict[str, Tensor]:
    """Return the arrays of `pad_extra` as tensors."""
    return {name: torch.from_numpy(values) for name, values in pad_extra(extras).items()}


def as_tensor(inputs: Array) -> Tensor:
    """Return inputs (n, …) as a tensor that shares their memory; images (n, H, W, C) become (n, C, H, W)."""
    tensor = torch.from_numpy(inputs)
    return tensor.permute(0, 3, 1, 2) if inputs.ndim == 4 else tensor
