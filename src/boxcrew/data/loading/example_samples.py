"""Examples with one label each, or none, as samples of training and evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from boxcrew.core.types import Batch, Ints
from boxcrew.data.examples.example_set import Array, ExampleSplit
from boxcrew.data.loading.collate import as_tensor
from boxcrew.data.loading.loader import Fields, StepRequest, batches_of, eval_fields
from boxcrew.data.loading.order import step_rng
from boxcrew.data.loading.workers import Workers
from boxcrew.data.transforms.draws import sample_draws
from boxcrew.data.transforms.mixing import Mixed


class Augment(Protocol):
    """An augmentation of many inputs at once, (n, …) -> (n, …)."""

    def __call__(self, inputs: Array, *, seed: int, epochs: Ints, indices: Ints) -> Array: ...


class Mix(Protocol):
    """Mixes the samples of a step with each other; see `transforms/mixing.py`."""

    def __call__(self, inputs: Tensor, labels: Tensor, *, rng: np.random.Generator) -> Mixed: ...


class ExtraTargets(Protocol):
    """Makes further targets by name, each (n, …), such as random numbers that belong to the samples."""

    def __call__(self, *, seed: int, epochs: Ints, indices: Ints) -> dict[str, Array]: ...


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """The changes that examples go through on their way into a training batch."""

    augment: Augment | None = None
    mix: Mix | None = None
    extra: ExtraTargets | None = None
    keeps_inputs: bool = False  # whether the inputs before `augment` become a target, `unchanged`


@dataclass(frozen=True, kw_only=True, eq=False)
class ExampleSamples:
    """Reads, augments and mixes examples; a `SampleMaker`."""

    examples: ExampleSplit
    blank: Array  # (2, …) the inputs of a blank batch
    augmentation: Augmentation = Augmentation()
    noun = "examples"

    def make(self, request: StepRequest) -> Batch:
        if self.augmentation.mix is None:
            return self._read(request.seed, *request.share())
        return self._mixed(request, self.augmentation.mix)

    def _mixed(self, request: StepRequest, mix: Mix) -> Batch:
        """Make all samples of the step, since a partner may be in another share, then select the share."""
        step = self._read(request.seed, request.epochs, request.indices)
        rng = step_rng(request.seed, request.step)
        inputs, targets = mix(step.inputs, step.targets["labels"], rng=rng)
        mixed = replace(step, inputs=inputs, targets=targets)
        if request.is_full or step.is_blank:
            return mixed
        # Fewer than the share where some of the step were skipped.
        kept = [position for position in request.positions.tolist() if position < len(step)]
        return replace(mixed.select(kept), skipped=step.skipped) if kept else replace(mixed, is_blank=True)

    def _read(self, seed: int, epochs: Ints, indices: Ints) -> Batch:
        fetched = self.examples.fetch(indices)
        if not len(fetched.indices):
            return self._blank(seed, fetched.skipped)
        inputs, targets = fetched.inputs, {"labels": fetched.labels}
        if len(fetched.indices) < len(indices):
            epochs = epochs[np.isin(indices, fetched.indices)]
        source: dict[str, Any] = {"seed": seed, "epochs": epochs, "indices": fetched.indices}
        if self.augmentation.augment is not None:
            if self.augmentation.keeps_inputs:
                targets["unchanged"] = inputs
            inputs = self.augmentation.augment(inputs, **source)
        if self.augmentation.extra is not None:
            targets |= self.augmentation.extra(**source)
        keys = tuple(map(self.examples.key, fetched.indices.tolist()))
        draws = torch.from_numpy(sample_draws(**source))
        return replace(_batch(inputs, targets, keys, fetched.skipped), draws=draws)

    def _blank(self, seed: int, skipped: tuple[str, ...]) -> Batch:
        zeros = np.zeros(2, dtype=np.int64)
        targets = {"labels": zeros}
        if self.augmentation.extra is not None:
            targets |= self.augmentation.extra(seed=seed, epochs=zeros, indices=zeros)
        return replace(_batch(self.blank, targets, ("", ""), skipped), is_blank=True)


def _batch(
    inputs: Array, targets: dict[str, Array], keys: tuple[str, ...], skipped: tuple[str, ...]
) -> Batch:
    tensors = {name: torch.from_numpy(value) for name, value in targets.items()}
    return Batch(inputs=as_tensor(inputs), targets=tensors, keys=keys, skipped=skipped)


def eval_example_batches(examples: ExampleSplit, *, batch: int, workers: Workers) -> Iterator[Batch]:
    """Yield every example once, in order; `DataError` if none at all could be read."""
    read = partial(_eval_fields, examples)
    requests = batches_of(range(len(examples)), batch)
    for fields in eval_fields(read, requests, workers=workers, noun=ExampleSamples.noun):
        yield Batch(**fields)


def _eval_fields(examples: ExampleSplit, indices: Ints) -> Fields:
    fetched = examples.fetch(indices)
    if not len(fetched.indices):
        return {"inputs": None, "skipped": fetched.skipped}
    keys = tuple(map(examples.key, fetched.indices.tolist()))
    return dict(vars(_batch(fetched.inputs, {"labels": fetched.labels}, keys, fetched.skipped)))
