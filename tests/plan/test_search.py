"""Plans for machines that are described, not asked."""

from __future__ import annotations

from typing import Literal

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.hardware.machine import Device, Machine
from boxcrew.plan.plan import MemoryFormat, Plan
from boxcrew.plan.search import DeployConfig, InputWishes, make_plan

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
    **wishes: object,
) -> Plan:
    return make_plan(
        host,
        DeployConfig.of(wishes),
        device=device,
        batch=batch,
        inputs=InputWishes(workers=workers, cache=cache),
        cpu_format=cpu_format,
    )


def test_an_eighth_of_the_memory_may_hold_decoded_images_unless_told() -> None:
    assert make(machine()).cache_bytes == 8 * GIB
    assert make(machine(), cache=0).cache_bytes == 0
    assert make(machine(), cache=5).cache_bytes == 5
    elsewhere = machine().model_copy(update={"platform": "macOS-15"})
    assert make(elsewhere, workers=1).cache_bytes == 0  # processes there share no memory
    assert make(elsewhere, workers=0).cache_bytes == 8 * GIB


def test_without_an_accelerator_the_cpu_computes() -> None:
    plan = make(machine(), cpu_format="channels_last")
    assert (plan.clone_device, plan.precision, plan.memory_format) == ("cpu", "fp32", "channels_last")
    assert plan.parameter_device == plan.optimizer_device == plan.inputs_device == "cpu"
    assert (plan.threads, plan.loader_workers) == (8, 1)
    assert any("no accelerator" in reason for reason in plan.reasons)
    assert make(machine(), cpu_format="contiguous").memory_format == "contiguous"


@pytest.mark.parametrize(
    ("device", "precision"), [(NEW, "bf16"), (OLD, "fp16"), (APPLE, "fp32"), (CPU, "fp32")]
)
def test_precision_follows_from_the_described_device(device: Device, precision: str) -> None:
    plan = make(machine(NEW, OLD, APPLE), device=device.name)
    assert (plan.clone_device, plan.precision) == (device.name, precision)


def test_the_first_accelerator_is_taken_unless_told() -> None:
    assert make(machine(NEW, OLD)).clone_device == "cuda:0"
    assert make(machine(NEW, OLD), device="cuda").clone_device == "cuda:0"
    assert make(machine(NEW, OLD), device="gpu").clone_device == "cuda:0"
    assert make(machine(NEW, OLD), device="cuda:1").clone_device == "cuda:1"
    assert make(machine(NEW, OLD), device="cpu").clone_device == "cpu"
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
    with pytest.raises(UsageError, match="accumulation=17: more parts than batch=16"):
        make(machine(), accumulation=17)
    with pytest.raises(UsageError, match=r"deploy\.threads"):
        make(machine(), threads=0)
