"""Plans of steps whose clones are dealt to fewer replicas."""

from __future__ import annotations

from typing import Any

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.plan.dealing import deal
from boxcrew.plan.plan import Plan
from tests.plan import test_hosts as hosts
from tests.plan.test_search import NEW, devices, machine, make, shares

GPUS = (NEW, NEW.model_copy(update={"name": "cuda:1"}))


def logical(replicas: int, clones: int = 4, **settings: Any) -> Plan:
    return make(machine(), replicas=replicas, logical_clones=clones, cache=0, **settings)


def peak(plan: Plan) -> int:
    assert plan.predicted is not None
    return plan.predicted.on("cpu").peak


def step(plan: Plan) -> float:
    assert plan.predicted is not None
    return plan.predicted.step.likely


@pytest.mark.parametrize("num", [1, 2, 3, 4])
def test_what_decides_the_numbers_does_not_depend_on_the_replicas(num: int) -> None:
    plan, most = logical(num), logical(4)
    assert (plan.strategy, shares(plan), plan.exact) == ("ddp", [4] * 4, True)
    assert tuple(plan.clones_of(rank) for rank in range(num)) == deal(4, num)
    for name in ("threads", "memory_format", "accumulation", "precision", "recompute", "batch_norm"):
        assert getattr(plan, name) == getattr(most, name), name
    assert plan.threads == 2, "an eighth of the cores for each clone, as if all were replicas"
    text = f"4 clones on {num} replica{'s' * (num > 1)}, summed in a fixed order"
    assert any(line.startswith(text) for line in plan.explain())


def test_clones_in_turn_take_longer_and_less_memory() -> None:
    two, four = logical(2), logical(4)
    assert peak(two) < 0.7 * peak(four)
    assert 1.5 * step(four) < step(two) < 2.5 * step(four)
    assert two.predicted is not None
    begins = {span.lane: span.begin for span in reversed(two.predicted.timeline) if span.name == "forward"}
    assert begins["clone_1 on cpu"] > begins["clone_0 on cpu"] == begins["clone_2 on cpu"]


def test_clones_in_turn_are_on_the_device_of_their_replica() -> None:
    plan = make(machine(*GPUS), replicas=2, logical_clones=4)
    assert devices(plan) == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]
    assert devices(make(machine(*GPUS), logical_clones=4)) == devices(plan)
    assert devices(make(machine(NEW), logical_clones=3, replicas=1)) == ["cuda:0"] * 3


def test_one_logical_clone_is_a_run_without() -> None:
    assert logical(1, clones=1) == make(machine(), replicas=1, cache=0)


def test_clones_are_dealt_to_several_hosts() -> None:
    plan = hosts.plan(hosts.BIG, hosts.SMALL, logical_clones=5, batch=10)
    assert [plan.clones_of(rank) for rank in range(3)] == [range(2), range(2, 4), range(4, 5)]
    assert shares(plan) == [2] * 5
    assert plan.clones[4].device == "cuda:0"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"replicas": 3, "logical_clones": 2}, "logical_clones=2: fewer than the 3 replicas"),
        ({"replicas": 2, "logical_clones": 4, "strategy": "fsdp"}, "only for deploy.strategy=ddp"),
        ({"clones": 2, "logical_clones": 4, "clone_on_cpu": True}, "only for deploy.strategy=ddp"),
        (
            {"replicas": 2, "exact": True, "strategy": "fsdp"},
            "deploy.exact=true: deploy.strategy=fsdp adds up",
        ),
        (
            {"exact": True, "servers": 1, "strategy": "parameter_server"},
            "deploy.strategy=parameter_server adds",
        ),
        ({"replicas": 1, "logical_clones": 17}, "17 clones: more than batch=16 has samples"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(machine(), **settings)  # type: ignore[arg-type]


def test_sums_are_exact_unless_told() -> None:
    assert logical(2).exact
    assert logical(2, exact=True).exact
    plain = logical(2, exact=False)
    assert not plain.exact
    assert any("summed in any order" in line for line in plain.explain())
