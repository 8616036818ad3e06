"""Plans for replicas on several hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.hardware.machine import Device, Host, Link, Machine
from boxcrew.plan.cost import BUCKET_BYTES, SMALL_MESSAGES
from boxcrew.plan.hosts import plan_hosts
from boxcrew.plan.plan import Plan
from boxcrew.plan.request import DeployConfig, PlanRequest
from tests.helpers.workloads import a_workload


def machine(num_gpus: int, *, cores: int = 8, bf16: bool = True) -> Machine:
    cpu = Device(name="cpu", kind="cpu", model="a CPU", memory_bytes=1 << 34)
    gpus = tuple(
        Device(name=f"cuda:{i}", kind="cuda", model="a GPU", memory_bytes=1 << 34, bf16=bf16)
        for i in range(num_gpus)
    )
    return Machine(
        platform="Linux", python="3.11", torch="2", cores=cores, memory_bytes=1 << 34, devices=(cpu, *gpus)
    )


def plan(*hosts: Host, batch: int = 8, device: str = "auto", **deploy: Any) -> Plan:
    request = PlanRequest(
        deploy=DeployConfig.of(deploy), device=device, batch=batch, num_samples=1000, steps=1000
    )
    return plan_hosts(hosts, a_workload(inputs=None), request)


BIG = Host(name="big", machine=machine(2), ranks=(0, 1))
SMALL = Host(name="small", machine=machine(1, cores=2, bf16=False), ranks=(2,))


def test_every_replica_has_a_device_of_its_own_host() -> None:
    joined = plan(BIG, SMALL)
    assert [clone.device for clone in joined.clones] == ["cuda:0", "cuda:1", "cuda:0"]
    assert [clone.share for clone in joined.clones] == [3, 3, 2]
    assert (joined.strategy, joined.batch) == ("ddp", 8)
    assert "2 hosts: big, small" in joined.reasons


def test_what_all_must_have_in_common_all_can_do() -> None:
    joined = plan(BIG, SMALL)
    assert joined.threads == 2
    assert joined.precision == "fp32"
    assert joined.loader_workers == 1


def test_ranks_may_alternate_and_shares_follow_them() -> None:
    first, second = (Host(name=str(i), machine=machine(2), ranks=(i, i + 2)) for i in range(2))
    joined = plan(first, second, shares=(1, 2, 3, 4), batch=10, accumulation=5)
    assert [(clone.device, clone.share) for clone in joined.clones] == [
        ("cuda:0", 1),
        ("cuda:0", 2),
        ("cuda:1", 3),
        ("cuda:1", 4),
    ]
    assert joined.accumulation == 5


def test_with_servers_replicas_may_have_several_clones() -> None:
    far = Host(name="far", machine=machine(4), ranks=(1,))
    near = Host(name="near", machine=machine(4), ranks=(0,))
    server = Host(name="server", machine=machine(0), ranks=())
    joined = plan(near, far, server, strategy="parameter_server", clones=2)
    assert [[clone.device for clone in replica.clones] for replica in joined.replicas] == [
        ["cuda:0", "cuda:1"],
        ["cuda:0", "cuda:1"],
    ]
    assert joined.servers == 1


@pytest.mark.parametrize(
    ("deploy", "message"),
    [
        ({"replicas": 2}, "deploy.replicas=2: but 3 were started"),
        ({"strategy": "clones"}, "deploy.strategy=clones: cannot be used with 3 replicas"),
        ({"shares": (4, 4)}, "deploy.shares=4,4: 2 shares for 3 clones"),
        ({"clones": 2}, "deploy.clones=2"),
    ],
)
def test_what_cannot_be_is_refused(deploy: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(BIG, SMALL, **deploy)
    assert message in caught.value.message


def linked(rate: float, latency: float = 0.0) -> list[Host]:
    """Return two hosts with a network between them of so many bytes per second."""
    link = Link(bytes_per_second=rate, seconds=latency)
    described = machine(1).model_copy(update={"link": link})
    return [Host(name=name, machine=described, ranks=(rank,)) for rank, name in enumerate("ab")]


def step_of(*hosts: Host) -> tuple[float, str]:
    predicted = plan(*hosts).predicted
    assert predicted is not None
    return predicted.step.likely, predicted.bound


@pytest.mark.parametrize("megabits", [20, 100])
def test_a_slow_link_is_what_limits_the_run(megabits: int) -> None:
    """Each replica sends all gradients, of which backward hides no more than its own time."""
    unlinked = tuple(replace(host, machine=machine(1)) for host in linked(1))
    compute, _ = step_of(*unlinked)
    rate = megabits * 1e6 / 8
    step, bound = step_of(*linked(rate))
    sent = a_workload(inputs=None).gradients / rate
    assert bound == "communication"
    assert sent < step <= sent + compute


def test_synced_norms_leave_nothing_to_hide_messages_in() -> None:
    rate = 1e9
    first = plan(*linked(rate)).predicted
    synced = plan(*linked(rate), batch_norm="synced").predicted
    assert first is not None
    assert synced is not None
    assert synced.step.likely == pytest.approx(
        step_of(*linked(1e12))[0] + a_workload(inputs=None).gradients / rate, rel=0.01
    )
    assert first.step.likely < synced.step.likely


def test_a_link_that_is_fast_changes_nothing_and_latency_counts() -> None:
    fast, bound = step_of(*linked(1e12))
    assert bound == "compute"
    slow, _ = step_of(*linked(1e12, latency=1.0))
    messages = SMALL_MESSAGES + a_workload(inputs=None).gradients // BUCKET_BYTES
    assert slow == pytest.approx(fast + messages, rel=1e-3)
    reasons = plan(*linked(12.5e6, latency=0.0004)).reasons
    assert "the slowest link between them: 11.9 MiB/s, 0.4 ms for a message to all" in reasons


def test_more_replicas_than_a_host_has_devices() -> None:
    with pytest.raises(UsageError, match="more than there are accelerators"):
        plan(BIG, Host(name="small", machine=machine(1), ranks=(2, 3)))
