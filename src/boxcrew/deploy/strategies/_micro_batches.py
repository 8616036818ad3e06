"""The micro-batches of one share of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from boxcrew.core.types import Batch


class MicroBatch(NamedTuple):
    """A clone's samples of one micro-batch."""

    batch: Batch
    counts: bool  # False: stand-ins, with which a clone that has no sample takes part in collectives


def micro_batches_of(share: Batch, sizes: Sequence[int], *, every: bool) -> list[MicroBatch]:
    """Divide a share into micro-batches of these sizes, at least one. Of those without a sample there are
    only stand-ins, and none at all unless `every` one is needed.
    """
    if share.is_blank:
        return [MicroBatch(share, counts=False)] * (len(sizes) if every else 1)
    parts = iter(share.split(sizes))
    stand_in = MicroBatch(share.select([0, 0]), counts=False)  # two samples: a BatchNorm may need them
    micro_batches = [MicroBatch(next(parts), counts=True) if size else stand_in for size in sizes]
    return [micro_batch for micro_batch in micro_batches if micro_batch.counts or every]
