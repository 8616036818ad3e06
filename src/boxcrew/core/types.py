"""The values that pass between packages. All are frozen and keyword-only; none is changed in place."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Image = npt.NDArray[np.uint8]
"""An RGB image, (height, width, 3), 0..255, upright (EXIF orientation applied)."""

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

PADDING = 0  # the token that fills up shorter sequences


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """The true objects of one image, N of them, all arrays of the same length."""

    boxes: Floats  # (N, 4) xyxy in pixels of the upright image, edges not centers: a full image is 0, 0, w, h
    labels: Ints  # (N,) 0..C-1, no background
    difficult: Bools  # (N,) VOC: neither rewarded nor punished in evaluation
    crowd: Bools  # (N,) COCO: one box around many objects; never a training target

    @classmethod
    def of(
        cls,
        boxes: npt.ArrayLike,
        labels: npt.ArrayLike,
        difficult: npt.ArrayLike | None = None,
        crowd: npt.ArrayLike | None = None,
    ) -> Self:
        """Make a target of lists or arrays of any number type; flags default to false."""
        labels_array = np.asarray(labels, dtype=np.int64).reshape(-1)
        assert np.size(boxes) == 4 * len(labels_array), (np.shape(boxes), np.shape(labels))
        none = np.zeros(len(labels_array), dtype=np.bool_)
        return cls(
            boxes=np.asarray(boxes, dtype=np.float32).reshape(-1, 4),
            labels=labels_array,
            difficult=none if difficult is None else np.asarray(difficult, dtype=np.bool_).reshape(-1),
            crowd=none if crowd is None else np.asarray(crowd, dtype=np.bool_).reshape(-1),
        )

    @classmethod
    def joined(cls, parts: Iterable[Target]) -> Target:
        """Return the objects of all parts, one after the other."""
        columns = [vars(cls.of([], [])), *map(vars, parts)]
        return Target(**{name: np.concatenate([part[name] for part in columns]) for name in columns[0]})

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, keep: Bools | Ints | slice) -> Target:
        """Return only the objects that `keep` (a mask, indices or a slice) selects."""
        return Target(**{name: values[keep] for name, values in vars(self).items()})

    def with_boxes(self, boxes: Floats) -> Target:
        return replace(self, boxes=boxes.astype(np.float32, copy=False))


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """One sample on its way into a batch."""

    image: Image
    target: Target
    key: str  # names the sample in messages and files; unique in its data set
    draw: int = 0  # all that is random about the sample inside a network comes from this integer
    extra: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)  # further inputs, each (N, …)


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Samples of one shape. The first dimension of every tensor counts the samples, so that a batch of any
    task can be split. Detection: `inputs` uint8 (B, 3, H, W); `targets` has `boxes` (B, M, 4) in pixels of
    the input and `labels` (B, M) with -1 where an image has fewer than M objects.
    """

    inputs: Tensor
    targets: Mapping[str, Tensor]
    keys: tuple[str, ...]
    skipped: tuple[str, ...] = ()  # messages about samples that could not be read and were left out
    is_blank: bool = False  # nothing could be read: the samples are stand-ins, which must not count
    # (B,) int64, from seed, epoch and index alone: every random choice inside a network comes from these, so
    # that it is the same in any split and after a resume. Zeros unless given.
    draws: Tensor = None  # type: ignore[assignment]
    # What the network is given besides the images, by name and in this order. Detection with regions:
    # `regions` (B, R, 4) in pixels of the input, and `regions_valid` (B, R).
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    # The shares of this replica's other clones, in their order. Each is padded by itself, so that it is the
    # same whoever computes it.
    others: tuple[Batch, ...] = ()

    def __post_init__(self) -> None:
        if vars(self)["draws"] is None:
            import torch  # slow, and most users of this module do without

            object.__setattr__(self, "draws", self.inputs.new_zeros(len(self.keys), dtype=torch.int64))

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def shares(self) -> tuple[Batch, ...]:
        """The shares of all clones of this replica: this one and the others."""
        return (self, *self.others)

    def to(self, device: torch.device | str, **options: Any) -> Batch:
        """Return a copy on `device`; `options` are those of `Tensor.to`, for the inputs alone."""
        targets = {name: value.to(device, non_blocking=True) for name, value in self.targets.items()}
        extra = {name: value.to(device, non_blocking=True) for name, value in self.extra.items()}
        draws = self.draws.to(device, non_blocking=True)
        inputs = self.inputs.to(device, non_blocking=True, **options)
        return replace(self, inputs=inputs, targets=targets, draws=draws, extra=extra)

    def split(self, sizes: Sequence[int]) -> list[Batch]:
        """Return consecutive batches of these sizes, which must add up to this one; 0 gives none."""
        assert sum(sizes) == len(self), (sizes, len(self))
        starts = itertools.accumulate(sizes, initial=0)
        return [self._at(slice(a, b), self.keys[a:b]) for a, b in itertools.pairwise(starts) if b > a]

    def select(self, positions: Sequence[int]) -> Batch:
        """Return the samples at these positions, in this order."""
        return self._at(list(positions), tuple(self.keys[position] for position in positions))

    def _at(self, index: slice | list[int], keys: tuple[str, ...]) -> Batch:
        return Batch(
            inputs=self.inputs[index],
            targets={name: value[index] for name, value in self.targets.items()},
            keys=keys,
            draws=self.draws[index],
            extra={name: value[index] for name, value in self.extra.items()},
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """Sums of loss terms and the weight to divide them by; never means, because only the deployment knows
    the weight over all clones and micro-batches of a step.
    """

    terms: Mapping[str, Tensor]  # each a scalar sum over the samples given
    weight: Tensor  # scalar, >= 0: what the sums are to be divided by (SSD: the number of matches)

    @property
    def divisor(self) -> Tensor:
        """The weight, or 1 if that is 0 (the sums are too). Without a branch, so that no device waits."""
        return self.weight.masked_fill(self.weight == 0, 1)

    def total(self) -> Tensor:
        return sum(self.terms.values(), start=self.weight.new_zeros(()))

    def detach(self) -> Losses:
        return Losses(terms={k: v.detach() for k, v in self.terms.items()}, weight=self.weight.detach())

    def zeroed(self) -> Losses:
        """Return the terms and the weight times zero; backward then gives gradients of zero."""
        return Losses(terms={k: 0 * v for k, v in self.terms.items()}, weight=0 * self.weight)

    def to(self, device: torch.device) -> Losses:
        terms = {name: value.to(device) for name, value in self.terms.items()}
        return Losses(terms=terms, weight=self.weight.to(device))

    def __add__(self, other: Losses) -> Losses:
        assert self.terms.keys() == other.terms.keys(), (list(self.terms), list(other.terms))
        terms = {name: value + other.terms[name] for name, value in self.terms.items()}
        return Losses(terms=terms, weight=self.weight + other.weight)


@dataclass(frozen=True, kw_only=True, eq=False)
class Detections:
    """The objects that a detector has found in one image, best first. They are arrays, so that code without
    torch can use them.
    """

    boxes: Floats  # (N, 4) xyxy in pixels of the image it was given
    scores: Floats  # (N,) 0..1, descending
    labels: Ints  # (N,) 0..C-1

    @classmethod
    def of(cls, boxes: npt.ArrayLike, scores: npt.ArrayLike, labels: npt.ArrayLike) -> Self:
        """Make detections of lists, arrays or tensors (on the CPU) of any number type."""
        return cls(
            boxes=np.asarray(boxes, dtype=np.float32).reshape(-1, 4),
            scores=np.asarray(scores, dtype=np.float32).reshape(-1),
            labels=np.asarray(labels, dtype=np.int64).reshape(-1),
        )

    def __len__(self) -> int:
        return len(self.scores)

    def above(self, score: float) -> Detections:
        """Return the detections with at least this score."""
        keep = self.scores >= score
        return Detections(boxes=self.boxes[keep], scores=self.scores[keep], labels=self.labels[keep])


@dataclass(frozen=True, kw_only=True, eq=False)
class PaddedDetections:
    """The objects found in B images, best first, padded to K for each image: no shape depends on data."""

    boxes: Tensor  # (B, K, 4) xyxy in pixels of the input
    scores: Tensor  # (B, K) 0..1, descending
    labels: Tensor  # (B, K) 0..C-1
    valid: Tensor  # (B, K) bool, false for padding, which comes last and is 0 everywhere

    def unpad(self) -> list[Detections]:
        """Return the detections of each image without padding. An accelerator waits for the host here."""
        tensors = self.boxes, self.scores, self.labels
        boxes, scores, labels = (values.detach().cpu().numpy() for values in tensors)
        nums = self.valid.sum(dim=1).tolist()
        return [
            Detections(boxes=boxes[i, :num], scores=scores[i, :num], labels=labels[i, :num])
            for i, num in enumerate(nums)
        ]
