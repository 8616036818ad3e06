"""The loaders of training and evaluation, for all kinds of samples: order, shares, and unreadable samples."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
from pydantic import ByteSize, Field

from boxcrew.core.config import Config
from boxcrew.core.errors import DataError
from boxcrew.core.types import Batch, Ints
from boxcrew.data.loading.order import SampleOrder
from boxcrew.data.loading.workers import Workers, fetch_all

Fields = dict[str, Any]
"""The fields of a batch: torch can pin the tensors of a dictionary, not those of a dataclass."""


class LoaderConfig(Config):
    """Settings of the loader processes; the plan replaces `auto`, since it knows the machine."""

    group: ClassVar[str] = "loader"

    workers: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Processes that make batches; auto follows the plan."""
    prefetch: int = Field(default=4, ge=1)
    """Batches that each worker makes ahead."""
    cache: ByteSize | Literal["auto"] = "auto"
    """Memory for decoded images, such as 2GiB; 0 keeps none."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StepRequest:
    """All samples of one training step, and which of them are to be made."""

    seed: int
    step: int
    epochs: Ints  # (B,) of all samples of the step
    indices: Ints  # (B,) in the data set; no two samples of a run share both epoch and index
    positions: Ints  # (b,) ascending, 0..B-1: the samples to make, which are a replica's share

    @property
    def is_full(self) -> bool:
        return len(self.positions) == len(self.indices)

    def share(self) -> tuple[Ints, Ints]:
        """Return the epochs (b,) and the indices (b,) of the samples to make."""
        return self.epochs[self.positions], self.indices[self.positions]


class SampleMaker(Protocol):
    """Makes the samples of training steps, in loader processes.

    It must draw what is random for a sample from (seed, epoch, index), and what is random for a step from
    (seed, step): batches are then the same with any number of workers and any shares. `sample_draws` gives
    their `draws`. A sample may be made from several of its step, also from those of other shares.
    """

    noun: str  # what the samples are called in messages, such as "images"

    def make(self, request: StepRequest) -> Batch:
        """Return the samples that could be read, with the others named in `skipped`. If none could be, return
        a blank batch of two samples, since a BatchNorm may need two.
        """


class TrainLoader:
    """Yields augmented batches without end: step s has positions s * batch … (s + 1) * batch of the order.

    With `positions`, only the samples at these positions of each step are made: those of one replica. With
    `share_sizes` they are those of several clones, one after the other: each share is a batch of its own.
    """

    def __init__(
        self,
        maker: SampleMaker,
        order: SampleOrder,
        *,
        batch: int,
        workers: Workers | None = None,
        positions: Sequence[int] | None = None,
        share_sizes: Sequence[int] | None = None,
    ) -> None:
        self._maker = maker
        self._order = order
        self._batch = batch
        self._workers = workers or Workers()
        self._positions = np.array(range(batch) if positions is None else positions, dtype=np.int64)
        ends = np.cumsum((len(self._positions),) if share_sizes is None else share_sizes)
        self._shares = np.split(self._positions, ends[:-1])

    def batches(self, start_step: int = 0, num_steps: int | None = None) -> Iterator[Batch]:
        """Yield the batches from `start_step` on. A sample that cannot be read is left out and named in
        `skipped`. If none can be read, a replica's share is blank, because others may have read theirs; a
        full step is a `DataError`.
        """
        steps = itertools.count(start_step)
        chosen = steps if num_steps is None else itertools.islice(steps, num_steps)
        for fields in fetch_all(self._fields, chosen, self._workers):
            others = tuple(Batch(**each) for each in fields.pop("others"))
            batch = Batch(**fields, others=others)
            if len(self._positions) == self._batch and all(share.is_blank for share in batch.shares):
                raise DataError(
                    f"none of the {self._batch} {self._maker.noun} of a step could be read; "
                    f"the first: {batch.skipped[0]}",
                    advice="check that the data set has not been moved or deleted",
                )
            yield batch

    def _fields(self, step: int) -> Fields:
        """Return the fields of a step's batch; runs in the loader processes."""
        epochs, indices = self._order.samples(step * self._batch, self._batch)
        request = StepRequest(
            seed=self._order.seed, step=step, epochs=epochs, indices=indices, positions=self._positions
        )
        shares = [self._maker.make(replace(request, positions=positions)) for positions in self._shares]
        first, *others = (dict(vars(share)) for share in shares)
        return {**first, "others": [{**each, "others": ()} for each in others]}


def batches_of(indices: Sequence[int], batch: int) -> list[Ints]:
    """Return consecutive batches of the indices; the last may be smaller."""
    return [np.array(indices[start : start + batch]) for start in range(0, len(indices), batch)]


def eval_fields(
    read: Callable[[Ints], Fields], requests: Sequence[Ints], *, workers: Workers, noun: str
) -> Iterator[Fields]:
    """Yield `read(indices)` for the indices of each request, in order.

    `read` runs in the loader processes, so it must be picklable. Its fields have `inputs`, None if nothing
    could be read: such a batch is left out, and its `skipped` goes to the next batch, or to the last one.
    `DataError` if no sample at all could be read.
    """
    held: Fields | None = None  # until it is known whether all that follow were skipped
    skipped: tuple[str, ...] = ()
    for fields in fetch_all(read, requests, workers):
        skipped += fields["skipped"]
        if fields["inputs"] is None:
            continue
        if held is not None:
            yield held
        held = {**fields, "skipped": skipped}
        skipped = ()
    if held is None:
        first = f"; the first: {skipped[0]}" if skipped else ""
        num_samples = sum(map(len, requests))
        raise DataError(f"none of the {num_samples} {noun} to evaluate could be read{first}")
    yield {**held, "skipped": held["skipped"] + skipped}
