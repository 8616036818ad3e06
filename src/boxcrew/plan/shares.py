"""How many of a step's samples each clone computes."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from boxcrew.core.errors import UsageError
from boxcrew.plan.request import DeployConfig


def shares_of(
    deploy: DeployConfig,
    batch: int,
    num_clones: int,
    speeds: Sequence[float] | None = None,
    *,
    least: int = 1,
) -> list[int]:
    """As asked for, else by the speeds of the clones, or equal; of `least` samples if there are enough."""
    if deploy.shares is None:
        if num_clones > batch:
            raise UsageError(f"{num_clones} clones: more than batch={batch} has samples")
        enough = batch >= least * num_clones
        return by_speed(batch, speeds or [1.0] * num_clones, least=least if enough else 1)
    told = ",".join(map(str, deploy.shares))
    if len(deploy.shares) != num_clones:
        raise UsageError(f"deploy.shares={told}: {len(deploy.shares)} shares for {num_clones} clones")
    if sum(deploy.shares) != batch:
        raise UsageError(
            f"deploy.shares={told}: add up to {sum(deploy.shares)}, but batch={batch}",
            advice="a share is how many of the batch's samples a clone computes",
        )
    return list(deploy.shares)


def by_speed(batch: int, speeds: Sequence[float], *, least: int = 1) -> list[int]:
    """At least so many for each, and for a faster one never fewer than for a slower: one sample after the
    other goes to the clone that would be done with it first.
    """
    shares = [least] * len(speeds)
    waiting = [((least + 1) / speed, -speed, i) for i, speed in enumerate(speeds)]
    heapq.heapify(waiting)
    for _ in range(batch - least * len(shares)):
        _, slowness, first = waiting[0]
        shares[first] += 1
        heapq.heapreplace(waiting, ((shares[first] + 1) / speeds[first], slowness, first))
    return shares
