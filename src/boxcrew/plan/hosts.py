"""Plans for replicas on several hosts: each host is planned by itself, and the plans are joined."""

from __future__ import annotations

from collections.abc import Sequence

from boxcrew.core.errors import UsageError
from boxcrew.core.units import format_bytes
from boxcrew.core.workload import Workload
from boxcrew.hardware.machine import Host
from boxcrew.plan.dealing import deal
from boxcrew.plan.layouts import shares_of
from boxcrew.plan.observed import Observed
from boxcrew.plan.plan import Plan, Replica
from boxcrew.plan.request import DeployConfig, PlanRequest
from boxcrew.plan.search import make_plan


def plan_hosts(
    hosts: Sequence[Host], workload: Workload, request: PlanRequest, observed: Observed | None = None
) -> Plan:
    """Plan for the replicas that the hosts have. Device names are those of the replica's own host."""
    deploy, batch = request.deploy, request.batch
    num = sum(len(host.ranks) for host in hosts)
    if deploy.replicas not in {"auto", num}:
        raise UsageError(f"deploy.replicas={deploy.replicas}: but {num} were started")
    strategy: str = "ddp" if deploy.strategy == "auto" and deploy.servers == "auto" else deploy.strategy
    if strategy in {"single", "clones"}:
        problem = f"deploy.strategy={strategy}: cannot be used with {num} replicas"
        raise UsageError(problem, advice="use deploy.strategy=ddp")
    clones = 1 if deploy.clones == "auto" else deploy.clones
    dealt = deal(num * clones if deploy.logical_clones == "auto" else deploy.logical_clones, num)
    shares = shares_of(deploy, batch, [1.0] * dealt[-1].stop)
    plans: list[Plan] = []
    computing = [host for host in hosts if host.ranks]
    for host in computing:
        own = [shares[clone] for rank in host.ranks for clone in dealt[rank]]
        changes = {"strategy": strategy, "replicas": len(host.ranks), "shares": tuple(own)}
        if deploy.logical_clones != "auto":
            changes["logical_clones"] = len(own)
        if deploy.accumulation != "auto":  # it is meant for the whole batch, not for one host's share
            changes["accumulation"] = 1
        part = {"deploy": deploy.model_copy(update=changes), "batch": sum(own), "num_replicas": num}
        plans.append(make_plan(host.machine, workload, request.model_copy(update=part), observed))
    joined = _joined(computing, plans, deploy, batch)
    joined = joined.with_reason(f"{len(hosts)} hosts: {', '.join(host.name for host in hosts)}")
    link = computing[0].machine.link
    if link is None:
        return joined
    rate, latency = format_bytes(int(link.bytes_per_second)), link.seconds * 1000
    return joined.with_reason(
        f"the slowest link between them: {rate}/s, {latency:.2g} ms for a message to all"
    )


def _joined(hosts: Sequence[Host], plans: Sequence[Plan], deploy: DeployConfig, batch: int) -> Plan:
    """Join the plans of hosts. What replicas must have in common is what the weakest host can do."""
    replicas: dict[int, Replica] = {}
    for host, plan in zip(hosts, plans, strict=True):
        replicas |= dict(zip(host.ranks, plan.replicas, strict=True))
    chiefs = next(plan for host, plan in zip(hosts, plans, strict=True) if 0 in host.ranks)
    asked, most = deploy.accumulation, max(plan.accumulation for plan in plans)
    common = {
        "replicas": [replicas[rank].tree() for rank in sorted(replicas)],
        "batch": batch,
        "accumulation": most if asked == "auto" else asked,
        "recompute": any(plan.recompute for plan in plans),
        "precision": chiefs.precision if len({plan.precision for plan in plans}) == 1 else "fp32",
        "threads": min(plan.threads for plan in plans),
        "loader_workers": min(plan.loader_workers for plan in plans),
        "cache_bytes": min(plan.cache_bytes for plan in plans),
        "reasons": list(dict.fromkeys(reason for plan in plans for reason in plan.reasons)),
    }
    return Plan.of(chiefs.tree() | common | {"predicted": _slowest(plans, batch), "rejected": []})


def _slowest(plans: Sequence[Plan], batch: int) -> dict[str, object] | None:
    """Return the prediction of the slowest host, for which all others wait, scaled to the whole batch."""
    known = [(plan.predicted, plan.batch) for plan in plans if plan.predicted is not None]
    if not known:
        return None
    slowest, own = max(known, key=lambda pair: pair[0].step.likely)
    speed = slowest.images_per_second * batch / own
    scaled = {"epoch": slowest.epoch.times(own / batch), "images_per_second": speed}
    return slowest.model_copy(update=scaled).tree()
