"""Plans for tests: one process on the CPU unless told."""

from __future__ import annotations

from typing import Any

from boxcrew.plan.plan import Clone, Plan, Replica


def plan_of(*shares: int, device: str = "cpu", **settings: Any) -> Plan:
    """With a clone of each share; `settings` are the plan's."""
    clones = tuple(Clone(device=device, share=share) for share in shares)
    known = {
        "replicas": (Replica(clones=clones),),
        "parameter_device": device,
        "optimizer_device": device,
        "batch": sum(shares),
        "threads": 1,
        "loader_workers": 0,
    }
    return Plan(**known | settings)
