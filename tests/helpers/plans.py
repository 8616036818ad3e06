"""Plans for tests, by default of one process on the CPU."""

from __future__ import annotations

from typing import Any

from boxcrew.plan.plan import Clone, Plan, Replica


def plan_of(*shares: int, device: str = "cpu", **settings: Any) -> Plan:
    """Return a plan with a clone for each share; `settings` are fields of the plan."""
    clones = tuple(Clone(device=device, share=share) for share in shares)
    defaults = {
        "replicas": (Replica(clones=clones),),
        "parameter_device": device,
        "optimizer_device": device,
        "batch": sum(shares),
        "threads": 1,
        "loader_workers": 0,
    }
    return Plan(**defaults | settings)
