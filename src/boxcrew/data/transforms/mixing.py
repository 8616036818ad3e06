"""Mixup and cutmix: the samples of a batch mixed with each other.

Each sample has a partner in the batch and a weight of its own, so the batch can be split in any way
afterwards. The targets are `labels`, `other_labels` (the partners') and `mix_weights`, all (B,): the
loss is weight * loss(labels) + (1 - weight) * loss(other_labels).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Mixed = tuple[Tensor, dict[str, Tensor]]
"""Inputs of the same dtype and shape as before, and targets."""


def mixup(inputs: Tensor, labels: Tensor, *, alpha: float, rng: np.random.Generator) -> Mixed:
    """Average each sample with its partner, with shares from Beta(alpha, alpha) (Zhang et al. 2018,
    equation 1). `inputs` (B, …) are of any dtype; integers are rounded.
    """
    partners = _partners(len(inputs), rng)
    weights = torch.from_numpy(rng.beta(alpha, alpha, len(inputs)).astype(np.float32))
    columns = weights.reshape(-1, *[1] * (inputs.ndim - 1))
    mixed = torch.lerp(inputs[partners].float(), inputs.float(), columns)
    if not inputs.is_floating_point():
        mixed = mixed.round()
    return mixed.to(inputs.dtype), _targets(labels, partners, weights)


def cutmix(inputs: Tensor, labels: Tensor, *, alpha: float, rng: np.random.Generator) -> Mixed:
    """Replace a region of each sample by its partner's: of images (B, C, H, W) a rectangle (Yun et al. 2019,
    section 3.1), of rows of numbers (B, F) random ones, as they have no order. The weight is exactly the
    fraction that is left of the sample.
    """
    partners = _partners(len(inputs), rng)
    wanted = rng.beta(alpha, alpha, len(inputs))
    cut = _cut_numbers if inputs.ndim == 2 else _cut_rectangles
    mixed, weights = cut(inputs, partners, wanted, rng)
    return mixed, _targets(labels, partners, weights)


def _cut_numbers(
    inputs: Tensor, partners: Tensor, wanted: npt.NDArray[np.float64], rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    is_cut = torch.from_numpy(rng.random(tuple(inputs.shape)) >= wanted[:, None])
    return torch.where(is_cut, inputs[partners], inputs), 1 - is_cut.float().mean(dim=1)


def _cut_rectangles(
    inputs: Tensor, partners: Tensor, wanted: npt.NDArray[np.float64], rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Replace rectangles, clipped to the image."""
    sides = np.array(inputs.shape[-2:])
    centers = rng.random((len(inputs), 2))
    half = np.sqrt(1 - wanted)[:, None] / 2
    starts = np.rint(np.maximum(centers - half, 0) * sides).astype(np.int64)
    ends = np.rint(np.minimum(centers + half, 1) * sides).astype(np.int64)
    mixed = inputs.clone()
    # NumPy copies small rectangles many times as fast as torch.
    pixels, originals = mixed.numpy(), inputs.numpy()
    rectangles = zip(partners.tolist(), starts.tolist(), ends.tolist(), strict=True)
    for i, (partner, (top, left), (bottom, right)) in enumerate(rectangles):
        pixels[i, ..., top:bottom, left:right] = originals[partner, ..., top:bottom, left:right]
    return mixed, torch.from_numpy(1 - (ends - starts).prod(axis=1) / sides.prod()).float()


def _partners(num: int, rng: np.random.Generator) -> Tensor:
    """Return (num,) the next of each sample in a random cycle: never itself, unless it is alone."""
    circle = rng.permutation(num)
    partners = np.empty(num, dtype=np.int64)
    partners[circle] = np.roll(circle, -1)
    return torch.from_numpy(partners)


def _targets(labels: Tensor, partners: Tensor, weights: Tensor) -> dict[str, Tensor]:
    return {"labels": labels, "other_labels": labels[partners], "mix_weights": weights}
