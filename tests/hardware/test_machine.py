"""A machine is data."""

from __future__ import annotations

import json

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.hardware.machine import Device, Machine

GIB = 1 << 30
CPU = Device(name="cpu", kind="cpu", model="a CPU", memory_bytes=8 * GIB)
GPU = Device(name="cuda:0", kind="cuda", model="a GPU", memory_bytes=16 * GIB, bf16=True)


def machine(*devices: Device, cores: float) -> Machine:
    return Machine(
        platform="Linux", python="3.11", torch="2", cores=cores, memory_bytes=8 * GIB, devices=devices
    )


def test_round_trip_through_json() -> None:
    made = machine(CPU, GPU, cores=2.5)
    assert Machine.of(json.loads(json.dumps(made.tree()))) == made


def test_one_written_before_it_said_what_is_free_is_read() -> None:
    tree = machine(CPU, cores=2).tree()
    del tree["busy_cores"], tree["devices"][0]["free_bytes"]
    assert Machine.of(tree) == machine(CPU, cores=2)


def test_accelerators_and_headline() -> None:
    assert machine(CPU, GPU, cores=1).accelerators == (GPU,)
    assert machine(CPU, GPU, cores=1).headline() == "1 CPU core, 8.0 GiB, a GPU 16.0 GiB"
    assert machine(CPU, cores=2.5).headline() == "2.5 CPU cores, 8.0 GiB, no GPU"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"memory_bytes": -1}, "memory_bytes"),
        ({"memory_bytes": 0}, "memory_bytes"),
        ({"cores": 0}, "cores"),
        ({"busy_cores": -0.1}, "busy_cores"),
        ({"devices": [CPU.tree() | {"free_bytes": -1}]}, "free_bytes"),
        ({"devices": []}, "devices"),
        ({"devices": [GPU.tree()]}, "the CPU must be the first, not cuda:0"),
        ({"devices": [CPU.tree(), GPU.tree(), GPU.tree()]}, "cuda:0 is listed twice"),
        ({"devices": [CPU.tree() | {"memory_bytes": -5}]}, r"devices.*memory_bytes"),
        ({"devices": [CPU.tree() | {"kind": ""}]}, "kind"),
        ({"devices": [CPU.tree() | {"speeds": {"gemm": -1}}]}, "gemm"),
        ({"coers": 2}, "coers: no such setting; did you mean 'cores'"),
    ],
)
def test_a_machine_that_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Machine.of(machine(CPU, cores=2).tree() | change)
