"""Division of a step, by pure functions: samples among clones and micro-batches, clones among replicas."""

from __future__ import annotations

import itertools
from functools import cache


def deal(num_clones: int, num_replicas: int) -> tuple[range, ...]:
    """Return the clones that each replica computes: consecutive ones, the first replicas one more if the
    numbers do not divide. What a clone computes does not depend on who computes it.
    """
    each, more = divmod(num_clones, num_replicas)
    begins = [rank * each + min(rank, more) for rank in range(num_replicas + 1)]
    return tuple(range(begin, end) for begin, end in itertools.pairwise(begins))


def micro_batch_sizes(num_samples: int, accumulation: int) -> list[int]:
    """Divide samples into at most `accumulation` sizes, as equal as possible, the larger ones first."""
    num = min(accumulation, num_samples)
    return [num_samples // num + (index < num_samples % num) for index in range(num)]


@cache
def distribute(shares: tuple[int, ...], num_samples: int, accumulation: int) -> tuple[tuple[int, ...], ...]:
    """Return how many samples of each micro-batch every clone gets. In a full batch each gets its share.

    The first clone gets one sample of every micro-batch, even if its share is smaller, because its BatchNorm
    statistics are kept. Each next sample goes to the clone that is furthest behind its share.
    """
    sizes = micro_batch_sizes(num_samples, accumulation)
    rest = (max(0, shares[0] - len(sizes)), *shares[1:])
    given, total, micro_batches = [0] * len(shares), 0, []
    for size in sizes:
        counts = [1] + [0] * (len(shares) - 1)
        total += size - 1
        for _ in range(size - 1):
            behind = [share * total - had * sum(rest) for share, had in zip(rest, given, strict=True)]
            furthest = behind.index(max(behind))
            given[furthest] += 1
            counts[furthest] += 1
        micro_batches.append(tuple(counts))
    return tuple(micro_batches)
