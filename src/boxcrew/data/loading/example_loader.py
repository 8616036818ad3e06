"""Batches of examples that have one label each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from boxcrew.core.errors import DataError
from boxcrew.core.types import Batch, Ints
from boxcrew.data.examples.example_set import Array, Examples
from boxcrew.data.loading.order import SampleOrder, step_rng
from boxcrew.data.loading.workers import Workers, fetch_all
from boxcrew.data.transforms.mixing import Mixed


class Change(Protocol):
    """An augmentation of many inputs at once, (n, …) -> (n, …)."""

    def __call__(self, inputs: Array, *, seed: int, epochs: Ints, indices: Ints) -> Array: ...


class Mix(Protocol):
    """Of the samples of a step with each other; see `transforms/mixing.py`."""

    def __call__(self, inputs: Tensor, labels: Tensor, *, rng: np.random.Generator) -> Mixed: ...


class Extra(Protocol):
    """What samples get along, such as random numbers of their own: targets by name, each (n, …)."""

    def __call__(self, *, seed: int, epochs: Ints, indices: Ints) -> dict[str, Array]: ...


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What is done to examples on their way into a batch of training."""

    change: Change | None = None
    mix: Mix | None = None
    extra: Extra | None = None
    keeps_inputs: bool = False  # whether changed inputs are a target, `unchanged`, as they were before


@dataclass(frozen=True, kw_only=True, eq=False)
class Stream:
    """What is learnt from, in which order, and how it is changed."""

    examples: Examples
    order: SampleOrder
    blank: Array  # (2, …) inputs that stand for nothing; two, for a BatchNorm may need them
    changes: Changes = Changes()


class ExampleLoader:
    """Full batches without end; step s has positions s * batch … (s + 1) * batch of the order. What a step
    holds depends on the seed alone. With `places`, only the samples at these places of each step are given.
    """

    def __init__(
        self, stream: Stream, *, batch: int, workers: Workers, places: Sequence[int] | None = None
    ) -> None:
        self._examples = stream.examples
        self._order = stream.order
        self._changes = stream.changes
        self._blank_inputs = stream.blank
        self._batch = batch
        self._workers = workers
        self._places = None if places is None or list(places) == list(range(batch)) else np.array(places)

    def batches(self, start_step: int = 0, num_steps: int | None = None) -> Iterator[Batch]:
        """From `start_step` on. What cannot be read is left out and named in `skipped`. If that leaves
        nothing, a replica's share is blank, for others may have read theirs; else it is a `DataError`.
        """
        steps = itertools.count(start_step)
        chosen = steps if num_steps is None else itertools.islice(steps, num_steps)
        for parts in fetch_all(self._parts, chosen, self._workers):
            if parts["is_blank"] and self._places is None:
                raise DataError(
                    f"none of the {self._batch} examples of a step could be read; "
                    f"the first: {parts['skipped'][0]}",
                    advice="check that the data set is still in its place",
                )
            yield Batch(**parts)

    def _parts(self, step: int) -> dict[str, Any]:
        """The fields of a batch; runs in the loader processes."""
        batch = self._share(step) if self._changes.mix is None else self._mixed(step)
        return {name: getattr(batch, name) for name in ("inputs", "targets", "keys", "skipped", "is_blank")}

    def _share(self, step: int) -> Batch:
        epochs, indices = self._order.arrays(step * self._batch, self._batch)
        if self._places is not None:
            epochs, indices = epochs[self._places], indices[self._places]
        return self._read(epochs, indices)

    def _mixed(self, step: int) -> Batch:
        """A sample's partner may be in another share, so all are made, and then these are chosen."""
        assert self._changes.mix is not None
        whole = self._read(*self._order.arrays(step * self._batch, self._batch))
        rng = step_rng(self._order.seed, step)
        inputs, targets = self._changes.mix(whole.inputs, whole.targets["labels"], rng=rng)
        mixed = replace(whole, inputs=inputs, targets=targets)
        if self._places is None or whole.is_blank:
            return mixed
        kept = [
            place for place in self._places.tolist() if place < len(whole)
        ]  # fewer where some are skipped
        return replace(mixed.select(kept), skipped=whole.skipped) if kept else replace(mixed, is_blank=True)

    def _read(self, epochs: Ints, indices: Ints) -> Batch:
        found = self._examples.fetch(indices)
        if not len(found.indices):
            return self._blank(found.skipped)
        inputs, targets = found.inputs, {"labels": found.labels}
        if len(found.indices) < len(indices):
            epochs = epochs[np.isin(indices, found.indices)]
        place: dict[str, Any] = {"seed": self._order.seed, "epochs": epochs, "indices": found.indices}
        if self._changes.change is not None:
            if self._changes.keeps_inputs:
                targets["unchanged"] = inputs
            inputs = self._changes.change(inputs, **place)
        if self._changes.extra is not None:
            targets |= self._changes.extra(**place)
        return Batch(
            inputs=as_tensor(inputs),
            targets={name: torch.from_numpy(value) for name, value in targets.items()},
            keys=tuple(map(self._examples.key, found.indices.tolist())),
            skipped=found.skipped,
        )

    def _blank(self, skipped: tuple[str, ...]) -> Batch:
        targets = {"labels": np.zeros(2, dtype=np.int64)}
        if self._changes.extra is not None:
            none = np.zeros(2, dtype=np.int64)
            targets |= self._changes.extra(seed=self._order.seed, epochs=none, indices=none)
        return Batch(
            inputs=as_tensor(self._blank_inputs),
            targets={name: torch.from_numpy(value) for name, value in targets.items()},
            keys=("", ""),
            skipped=skipped,
            is_blank=True,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ExampleBatch:
    """Examples to evaluate."""

    inputs: Tensor
    labels: Tensor
    skipped: tuple[str, ...]


def in_turn(examples: Examples, *, batch: int, workers: Workers) -> Iterator[ExampleBatch]:
    """Each example once, in order; `DataError` if none at all could be read."""
    fetch = partial(_fetch, examples, batch)  # by its name: processes that are not forked are sent it
    skipped: tuple[str, ...] = ()
    held: ExampleBatch | None = None  # until it is known whether all that follows was skipped
    for parts in fetch_all(fetch, range(0, len(examples), batch), workers):
        skipped += parts["skipped"]
        if parts["inputs"] is None:
            continue
        if held is not None:
            yield held
        held = ExampleBatch(inputs=parts["inputs"], labels=parts["labels"], skipped=skipped)
        skipped = ()
    if held is None:
        first = f"; the first: {skipped[0]}" if skipped else ""
        raise DataError(f"none of the {len(examples)} examples to evaluate could be read{first}")
    yield replace(held, skipped=held.skipped + skipped)


def _fetch(examples: Examples, num: int, start: int) -> dict[str, Any]:
    found = examples.fetch(np.arange(start, min(start + num, len(examples))))
    return {
        "inputs": as_tensor(found.inputs) if len(found.indices) else None,
        "labels": torch.from_numpy(found.labels),
        "skipped": found.skipped,
    }


def as_tensor(inputs: Array) -> Tensor:
    """Pictures (n, H, W, C) become (n, C, H, W), laid out as they were."""
    tensor = torch.from_numpy(inputs)
    return tensor.permute(0, 3, 1, 2) if inputs.ndim == 4 else tensor
