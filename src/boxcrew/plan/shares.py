"""The share of each clone: how many of a step's samples it computes."""

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
    """Return `deploy.shares`, or shares by the speeds of the clones, or equal ones.

    Every share has `least` samples if the batch has enough.
    """
    if deploy.shares is None:
        if num_clones > batch:
            raise UsageError(f"{num_clones} clones: more than batch={batch} has samples")
        enough = batch >= least * num_clones
        return by_speed(batch, speeds or [1.0] * num_clones, least=least if enough else 1)
    text = ",".join(map(str, deploy.shares))
    if len(deploy.shares) != num_clones:
        raise UsageError(f"deploy.shares={text}: {len(deploy.shares)} shares for {num_clones} clones")
    if sum(deploy.shares) != batch:
        raise UsageError(
            f"deploy.shares={text}: add up to {sum(deploy.shares)}, but batch={batch}",
            advice="a share is how many of the batch's samples a clone computes",
        )
    return list(deploy.shares)


def by_speed(batch: int, speeds: Sequence[float], *, least: int = 1) -> list[int]:
    """Divide the batch by speed: each next sample goes to the clone that would finish it first.

    Every clone gets at least `least` samples, and a faster one never fewer than a slower one.
    """
    shares = [least] * len(speeds)
    waiting = [((least + 1) / speed, -speed, i) for i, speed in enumerate(speeds)]
    heapq.heapify(waiting)
    for _ in range(batch - least * len(shares)):
        _, slowness, first = waiting[0]
        shares[first] += 1
        heapq.heapreplace(waiting, ((shares[first] + 1) / speeds[first], slowness, first))
    return shares
