"""Plans for replicas on several hosts: each host's part is planned by itself, and the parts are joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from boxcrew.core.errors import UsageError
from boxcrew.hardware.machine import Host, Machine
from boxcrew.plan.plan import Plan, Replica
from boxcrew.plan.request import DeployConfig
from boxcrew.plan.shares import shares_of

PlanPart = Callable[[Machine, DeployConfig, int], Plan]
"""For a machine, with these wishes and as many samples of each step."""


def plan_hosts(hosts: Sequence[Host], deploy: DeployConfig, batch: int, plan_part: PlanPart) -> Plan:
    """For as many replicas as the hosts have. Devices are named as the host of their replica names them."""
    num = sum(len(host.ranks) for host in hosts)
    if deploy.replicas not in {"auto", num}:
        raise UsageError(f"deploy.replicas={deploy.replicas}: but {num} were started")
    strategy: str = "ddp" if deploy.strategy == "auto" and deploy.servers == "auto" else deploy.strategy
    if strategy in {"single", "clones"}:
        raise UsageError(
            f"deploy.strategy={strategy}: not with {num} replicas", advice="deploy.strategy=ddp does it"
        )
    clones = 1 if deploy.clones == "auto" else deploy.clones
    shares = shares_of(deploy, batch, num * clones)
    parts: list[Plan] = []
    computing = [host for host in hosts if host.ranks]
    for host in computing:
        own = [share for rank in host.ranks for share in shares[rank * clones : (rank + 1) * clones]]
        part = {"strategy": strategy, "replicas": len(host.ranks), "shares": tuple(own)}
        if deploy.accumulation != "auto":  # of the whole batch, not of a host's part
            part["accumulation"] = 1
        parts.append(plan_part(host.machine, deploy.model_copy(update=part), sum(own)))
    joined = _joined(computing, parts, deploy, batch)
    return joined.because(f"{len(hosts)} hosts: {', '.join(host.name for host in hosts)}")


def _joined(hosts: Sequence[Host], parts: Sequence[Plan], deploy: DeployConfig, batch: int) -> Plan:
    """What all replicas must have in common is what the least of the hosts can do."""
    placed: dict[int, Replica] = {}
    for host, part in zip(hosts, parts, strict=True):
        placed |= dict(zip(host.ranks, part.replicas, strict=True))
    chiefs = next(part for host, part in zip(hosts, parts, strict=True) if 0 in host.ranks)
    common = {
        "replicas": [placed[rank].tree() for rank in sorted(placed)],
        "batch": batch,
        "accumulation": max(part.accumulation for part in parts)
        if deploy.accumulation == "auto"
        else deploy.accumulation,
        "recompute": any(part.recompute for part in parts),
        "precision": chiefs.precision if len({part.precision for part in parts}) == 1 else "fp32",
        "threads": min(part.threads for part in parts),
        "loader_workers": min(part.loader_workers for part in parts),
        "cache_bytes": min(part.cache_bytes for part in parts),
        "reasons": list(dict.fromkeys(reason for part in parts for reason in part.reasons)),
    }
    return Plan.of(chiefs.tree() | common | {"predicted": _slowest(parts, batch), "rejected": []})


def _slowest(parts: Sequence[Plan], batch: int) -> dict[str, object] | None:
    """What is expected of the host that all wait for. Its part has another batch than the whole."""
    known = [(part.predicted, part.batch) for part in parts if part.predicted is not None]
    if not known:
        return None
    slowest, own = max(known, key=lambda pair: pair[0].step.likely)
    speed = slowest.images_per_second * batch / own
    whole = {"epoch": slowest.epoch.times(own / batch), "images_per_second": speed}
    return slowest.model_copy(update=whole).tree()
