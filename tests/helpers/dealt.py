"""Batches of replicas that compute several clones."""

from __future__ import annotations

from dataclasses import replace

from boxcrew.core.types import Batch
from boxcrew.deploy.deployment import Deployment


def dealt(batch: Batch, deployment: Deployment) -> Batch:
    """Return the samples of a step that a replica computes, with a share for each of its clones."""
    plan = deployment.execution.plan
    shares = [batch.select(plan.clone_positions(clone)) for clone in deployment.own_indices]
    return replace(shares[0], others=tuple(shares[1:]))
