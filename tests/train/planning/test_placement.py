"""The placement of a plan, for people and for programs."""

from __future__ import annotations

import pytest
from torch import nn

from boxcrew.plan.plan import Clone, Plan, Replica
from boxcrew.train.planning.placement import placement, roles
from tests.helpers.plans import plan_of

NET = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))


def mixed() -> Plan:
    clones = (Clone(device="cuda:0", share=5), Clone(device="cpu", share=3))
    return plan_of(5, 3, replicas=(Replica(clones=clones),), strategy="clones", loader_workers=2)


def test_every_tensor_and_stage_has_a_device() -> None:
    placed = placement(mixed(), NET)
    assert placed["parameters"] == {name: "cpu" for name, _ in NET.named_parameters()}
    assert placed["buffers"] == {name: "cpu" for name, _ in NET.named_buffers()}
    assert placed["clones"] == [
        {"name": "clone_0", "replica": 0, "device": "cuda:0", "samples": 5},
        {"name": "clone_1", "replica": 0, "device": "cpu", "samples": 3},
    ]
    assert placed["stages"]["forward, loss, backward"] == ["cuda:0", "cpu"]
    assert placed["inputs_device"] == placed["optimizer_device"] == placed["parameter_device"] == "cpu"


def test_one_clone_needs_no_name() -> None:
    assert placement(plan_of(6), NET)["clones"] == [{"name": "", "replica": 0, "device": "cpu", "samples": 6}]


def test_the_table_names_every_role_in_the_classic_words() -> None:
    rows = roles(mixed(), NET, "adamw")
    assert [(who, where) for who, _, where in rows] == [
        ("inputs device", "cpu"),
        ("clone_0", "cuda:0"),
        ("clone_1", "cpu"),
        ("parameter device", "cpu"),
        ("optimizer device", "cpu"),
        ("chief", "replica 0"),
    ]
    duties = {who: does for who, does, _ in rows}
    assert duties["inputs device"] == "reads and transforms samples (2 workers), makes batches"
    assert duties["clone_1"] == "computes forward, loss and gradients of 3 of 8 samples"
    assert duties["parameter device"] == "keeps 240 parameters (960 B), adds up gradients"
    assert duties["optimizer device"] == "applies adamw"


def test_parts_and_one_worker_are_told() -> None:
    duties = {who: does for who, does, _ in roles(plan_of(8, accumulation=4, loader_workers=1), NET, "sgd")}
    assert duties["clone"] == "computes forward, loss and gradients of 8 of 8 samples, in 4 micro-batches"
    assert duties["inputs device"] == "reads and transforms samples (1 worker), makes batches"


def test_replicas_keep_and_update_for_themselves() -> None:
    replicas = tuple(Replica(clones=(Clone(device="cpu", share=4),)) for _ in range(2))
    rows = roles(plan_of(4, 4, replicas=replicas, strategy="ddp"), NET, "sgd")
    assert [who for who, _, _ in rows] == ["inputs device", "clone_0", "clone_1", "every replica", "chief"]
    assert rows[3][1] == "keeps 240 parameters (960 B), adds up gradients with the others, applies sgd"


@pytest.mark.parametrize(("strategy", "holder"), [("ddp", "every replica"), ("fsdp", "1/2 on every replica")])
def test_tensors_of_replicas_are_on_all_of_them(strategy: str, holder: str) -> None:
    replicas = tuple(Replica(clones=(Clone(device=f"cuda:{i}", share=4),)) for i in range(2))
    placed = placement(plan_of(4, 4, replicas=replicas, strategy=strategy, device="cuda:0"), NET)
    assert set(placed["parameters"].values()) == {holder}
    assert set(placed["buffers"].values()) == {"every replica"}
    assert [(clone["replica"], clone["device"]) for clone in placed["clones"]] == [
        (0, "cuda:0"),
        (1, "cuda:1"),
    ]
