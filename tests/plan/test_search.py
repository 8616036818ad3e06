"""Plans for machines that are described, not asked."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.hardware.machine import Device, Machine
from boxcrew.plan.plan import MemoryFormat, Plan
from boxcrew.plan.request import DeployConfig, PlanRequest
from boxcrew.plan.search import make_plan
from tests.helpers.workloads import a_workload

GIB = 1 << 30
CPU = Device(name="cpu", kind="cpu", model="a CPU", memory_bytes=64 * GIB)
NEW = Device(name="cuda:0", kind="cuda", model="new", memory_bytes=80 * GIB, bf16=True)
OLD = Device(name="cuda:1", kind="cuda", model="old", memory_bytes=16 * GIB)
APPLE = Device(name="mps", kind="mps", model="Apple GPU", memory_bytes=32 * GIB)


def machine(*devices: Device, cores: float = 8) -> Machine:
    return Machine(
        platform="Linux",
        python="3.11",
        torch="2",
        cores=cores,
        memory_bytes=64 * GIB,
        devices=(CPU, *devices),
    )


def make(
    host: Machine,
    *,
    device: str = "auto",
    batch: int = 16,
    workers: int | Literal["auto"] = "auto",
    cache: int | Literal["auto"] = "auto",
    cpu_format: MemoryFormat = "contiguous",
    **deploy: object,
) -> Plan:
    request = PlanRequest(
        deploy=DeployConfig.of(deploy),
        device=device,
        batch=batch,
        workers=workers,
        cache=cache,
        num_samples=1000,
        steps=1000,
    )
    return make_plan(host, a_workload(depthwise=cpu_format == "channels_last", inputs=None), request)


def devices(plan: Plan) -> list[str]:
    return [clone.device for clone in plan.clones]


def shares(plan: Plan) -> list[int]:
    return [clone.share for clone in plan.clones]


def test_an_eighth_of_the_memory_may_hold_decoded_images_unless_told() -> None:
    assert make(machine()).cache_bytes == 8 * GIB
    assert make(machine(), cache=0).cache_bytes == 0
    assert make(machine(), cache=5).cache_bytes == 5
    elsewhere = machine().model_copy(update={"platform": "macOS-15"})
    assert make(elsewhere, workers=1).cache_bytes == 0  # processes there share no memory
    assert make(elsewhere, workers=0).cache_bytes == 8 * GIB


def test_without_an_accelerator_the_cpu_computes() -> None:
    plan = make(machine(), cpu_format="channels_last")
    assert (devices(plan), plan.precision, plan.memory_format) == (["cpu"], "fp32", "channels_last")
    assert plan.parameter_device == plan.optimizer_device == plan.inputs_device == "cpu"
    assert (plan.threads, plan.loader_workers) == (8, 1)
    assert any("no accelerator" in reason for reason in plan.reasons)
    assert make(machine(), cpu_format="contiguous").memory_format == "contiguous"


@pytest.mark.parametrize(
    ("device", "precision"), [(NEW, "bf16"), (OLD, "fp16"), (APPLE, "fp32"), (CPU, "fp32")]
)
def test_precision_follows_from_the_described_device(device: Device, precision: str) -> None:
    plan = make(machine(NEW, OLD, APPLE), device=device.name)
    assert (devices(plan), plan.precision) == ([device.name], precision)


def test_all_accelerators_of_a_kind_are_taken_unless_told() -> None:
    assert devices(make(machine(NEW, OLD))) == ["cuda:0", "cuda:1"]
    assert devices(make(machine(NEW, OLD), device="cuda")) == ["cuda:0", "cuda:1"]
    assert devices(make(machine(NEW, OLD), device="gpu")) == ["cuda:0", "cuda:1"]
    assert devices(make(machine(NEW, OLD), batch=3)) == ["cuda:0"]  # two samples each there are not
    assert devices(make(machine(NEW, APPLE))) == ["cuda:0"]  # those could not talk to each other
    assert devices(make(machine(NEW, OLD), replicas=1)) == ["cuda:0"]
    assert devices(make(machine(NEW, OLD), device="cuda:1")) == ["cuda:1"]
    assert devices(make(machine(NEW, OLD), device="cpu")) == ["cpu"]
    assert make(machine(NEW)).loader_workers == 7
    assert make(machine(NEW)).memory_format == "channels_last"


def test_a_device_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="device=cuda:3: not on this machine") as caught:
        make(machine(NEW, OLD), device="cuda:3")
    assert caught.value.advice == "it has: cpu, cuda:0, cuda:1"
    with pytest.raises(UsageError):
        make(machine(), device="gpu")


def test_wishes_win() -> None:
    plan = make(
        machine(NEW),
        workers=0,
        precision="fp32",
        memory_format="contiguous",
        threads=3,
        accumulation=4,
    )
    assert (plan.precision, plan.memory_format, plan.threads) == ("fp32", "contiguous", 3)
    assert (plan.accumulation, plan.loader_workers) == (4, 0)


def test_a_part_of_a_core_is_still_one_thread() -> None:
    plan = make(machine(cores=0.5))
    assert (plan.threads, plan.loader_workers) == (1, 0)


def test_impossible_wishes_are_refused() -> None:
    with pytest.raises(UsageError, match="accumulation=17: more than batch=16"):
        make(machine(), accumulation=17)
    with pytest.raises(UsageError, match=r"deploy\.threads"):
        make(machine(), threads=0)


def test_clones_get_an_accelerator_each_and_equal_shares() -> None:
    plan = make(machine(NEW, OLD), clones=2, batch=7)
    assert (plan.strategy, devices(plan), shares(plan)) == ("clones", ["cuda:0", "cuda:1"], [4, 3])
    # The rule of the classic systems: the CPU keeps the parameters, makes the batches and applies the update.
    assert plan.parameter_device == plan.optimizer_device == plan.inputs_device == "cpu"
    assert plan.precision == "fp16"  # what the older of the two computes fast


def test_clones_may_share_the_cpu_or_be_mixed_as_wanted() -> None:
    plan = make(machine(NEW), clones=3, clone_on_cpu=True)
    assert (plan.strategy, devices(plan), shares(plan)) == ("clones", ["cpu"] * 3, [6, 5, 5])
    plan = make(machine(NEW, OLD), device="cuda:1,cpu", shares="13,3")
    assert (devices(plan), shares(plan)) == (["cuda:1", "cpu"], [13, 3])
    assert (plan.precision, plan.memory_format) == ("fp32", "channels_last")


def test_replicas_are_processes_with_one_clone_each() -> None:
    plan = make(machine(NEW, OLD), replicas=2, batch=7)
    assert plan.strategy == "ddp"
    assert [len(replica.clones) for replica in plan.replicas] == [1, 1]
    assert (devices(plan), shares(plan)) == (["cuda:0", "cuda:1"], [4, 3])
    assert (plan.threads, plan.loader_workers) == (4, 3)
    assert plan.cache_bytes == 4 * GIB


def test_replicas_share_a_cpu_where_there_is_nothing_else_or_as_told() -> None:
    plan = make(machine(cores=4), replicas=3)
    assert (devices(plan), plan.threads, plan.loader_workers) == (["cpu"] * 3, 1, 0)
    assert devices(make(machine(NEW, OLD), replicas=3, device="cpu")) == ["cpu"] * 3
    assert devices(make(machine(NEW, OLD), replicas=2, clone_on_cpu=True)) == ["cpu"] * 2
    assert devices(make(machine(NEW, OLD), replicas=2, device="cuda:1,cuda:0")) == ["cuda:1", "cuda:0"]
    with pytest.raises(UsageError, match="ddp needs devices of one kind, not cuda:1"):
        make(machine(NEW, OLD), replicas=2, device="cuda:1,cpu")
    mixed = make(machine(NEW, OLD), replicas=2, device="cuda:1,cpu", strategy="parameter_server")
    assert devices(mixed) == ["cuda:1", "cpu"]
    assert make(machine(), strategy="ddp").strategy == "ddp"


def test_the_optimizer_may_stay_in_main_memory() -> None:
    plan = make(machine(NEW), optimizer_device="cpu")
    assert (plan.strategy, devices(plan)) == ("clones", ["cuda:0"])
    assert plan.parameter_device == plan.optimizer_device == "cpu"
    assert make(machine(), optimizer_device="cpu").strategy == "single"


@pytest.mark.parametrize(
    ("deploy", "message"),
    [
        ({"clones": 3}, r"clones=3: more than there are accelerators for device=auto \(2\)"),
        ({"clones": 2, "device": "cuda:0"}, r"clones=2: more than .* device=cuda:0 \(1\)"),
        ({"clones": 0}, r"deploy\.clones"),
        ({"clones": -1}, r"deploy\.clones"),
        ({"clones": 2, "shares": "9,8"}, "shares=9,8: add up to 17, but batch=16"),
        ({"clones": 2, "shares": "8,4,4"}, "shares=8,4,4: 3 shares for 2 clones"),
        ({"clones": 2, "shares": "16,0"}, r"deploy\.shares"),
        ({"clones": 2, "shares": "a,b"}, r"deploy\.shares"),
        ({"clones": 17, "clone_on_cpu": True}, "17 clones: more than batch=16"),
        ({"clones": 3, "device": "cuda:0,cpu"}, "clones=3: device= names 2 devices"),
        ({"device": "cuda:0,cuda:7"}, "device=cuda:7: not on this machine"),
        ({"strategy": "single", "clones": 2}, "strategy=single: cannot be used with 2 clones"),
        (
            {"strategy": "single", "optimizer_device": "cpu"},
            "single: cannot be used with deploy.optimizer_device=cpu",
        ),
        ({"strategy": "clone"}, r"deploy\.strategy"),
        ({"replicas": 0}, r"deploy\.replicas"),
        ({"replicas": 3}, "replicas=3: more than there are accelerators"),
        ({"replicas": 2, "clones": 2}, "clones=2: with several replicas each has one clone"),
        ({"replicas": 2, "device": "cuda:0,cpu,cuda:1"}, "replicas=2: device= names 3 devices"),
        ({"replicas": 2, "strategy": "clones"}, "strategy=clones: cannot be used with deploy.replicas=2"),
        ({"replicas": 17, "clone_on_cpu": True}, "17 clones: more than batch=16"),
        ({"batch_norm": "second"}, r"deploy\.batch_norm"),
    ],
)
def test_impossible_clones_are_refused(deploy: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(machine(NEW, OLD), **deploy)


@pytest.mark.parametrize("num", [4, 16, 17, 64])
def test_evaluations_of_more_samples_at_once_than_steps_take_memory_of_their_own(num: int) -> None:
    each = 7 << 20
    workload = a_workload(inputs=None, evaluation_peak={"moments": [{"fixed": 0, "each": each}]})
    request = PlanRequest(batch=16, num_samples=1000, steps=1000, eval_batch=num)
    for host in (machine(), machine(NEW)):
        plan = make_plan(host, workload, request)
        assert plan.predicted is not None
        taken = {memory.device: memory.evaluation for memory in plan.predicted.memory}
        assert taken.pop(plan.clones[0].device) == (
            (each + workload.batch.each) * num if num > request.batch else 0
        )
        assert not any(taken.values())  # the chief evaluates where its first clone is
        for memory in plan.predicted.memory:
            assert memory.peak == memory.process + memory.evaluation + memory.workers
