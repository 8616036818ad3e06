"""Machines that are not here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxcrew.core.errors import UsageError
from boxcrew.hardware.assumed import FROM_HOST_BYTES, assumed_machine
from boxcrew.hardware.machine import Machine

GB, GIB = 10**9, 2**30


def test_words_become_a_machine() -> None:
    machine = assumed_machine("2x24GB-gpu, 16 cores, 64GB")
    assert [device.name for device in machine.devices] == ["cpu", "cuda:0", "cuda:1"]
    assert (machine.cores, machine.numa_nodes, machine.busy_cores) == (16, 1, 0)
    assert machine.memory_bytes == machine.devices[0].memory_bytes == 64 * GB
    for device in machine.accelerators:
        assert (device.kind, device.memory_bytes, device.bf16, device.speeds) == ("cuda", 24 * GB, True, None)
    assert machine.platform.startswith("Linux")
    assert "assumed: 2x24GB-gpu, 16 cores, 64GB" in machine.platform
    assert Machine.of(json.loads(json.dumps(machine.tree()))) == machine


def test_what_is_not_said_is_usual() -> None:
    machine = assumed_machine("8GiB-GPU")
    assert (machine.cores, machine.memory_bytes, machine.numa_nodes) == (8, 32 * GB, 1)
    assert assumed_machine("4 cores").accelerators == ()


@given(st.permutations(["2x24GB-gpu", "0.5 cores", "1.5 TiB", "2 numa nodes", "8GB-gpu"]), st.booleans())
def test_order_and_capitals_mean_nothing(words: list[str], capitals: bool) -> None:
    text = " ,".join(words)
    machine = assumed_machine(text.upper() if capitals else text)
    assert (machine.cores, machine.memory_bytes, machine.numa_nodes) == (0.5, 3 * 2**39, 2)
    assert [device.name for device in machine.accelerators] == ["cuda:0", "cuda:1", "cuda:2"]
    assert sorted(device.memory_bytes for device in machine.accelerators) == [8 * GB, 24 * GB, 24 * GB]


def test_accelerators_are_numbered_in_their_order() -> None:
    accelerators = assumed_machine("24GB-gpu, 2x16GB-tpu, 1x512MB-gpu-fp16, 1 core").accelerators
    assert [(d.name, d.kind, d.memory_bytes, d.bf16) for d in accelerators] == [
        ("cuda:0", "cuda", 24 * GB, True),
        ("cuda:1", "cuda", 512 * 10**6, False),
        ("xla:0", "xla", 16 * GB, True),
        ("xla:1", "xla", 16 * GB, True),
    ]


def test_a_speed_that_is_said_counts_for_all_kinds_of_work() -> None:
    fast, older, unknown = assumed_machine(
        "24GiB-gpu@40TFLOPS, 8GB-gpu-fp16@2.5 tflops, 8GB-gpu"
    ).accelerators
    assert fast.speeds is not None
    assert older.speeds is not None
    assert unknown.speeds is None
    for speeds, gflops in ((fast.speeds, 40e3), (older.speeds, 2.5e3)):
        assert (speeds.gemm, speeds.convolution, speeds.convolution_channels_last) == (gflops,) * 3
        assert speeds.from_host_bytes == FROM_HOST_BYTES
        assert speeds.copy_bytes == pytest.approx(gflops * 12e6)
    assert (fast.memory_bytes, older.bf16) == (24 * GIB, False)


@pytest.mark.parametrize("text", ["2xRTX-4090", "2 x rtx 4090", "RTX4090, rtx4090"])
def test_a_card_is_known_by_its_name(text: str) -> None:
    machine = assumed_machine(text)
    assert [device.name for device in machine.devices] == ["cpu", "cuda:0", "cuda:1"]
    for device in machine.accelerators:
        assert (device.model, device.memory_bytes, device.bf16) == ("assumed RTX-4090", 24 * GIB, True)
        assert device.speeds is not None
        assert (device.speeds.gemm, device.speeds.half) == (82.6e3, 165.2e3)


def test_cards_of_several_kinds_are_numbered_in_their_order() -> None:
    accelerators = assumed_machine("T4, 2x8GB-gpu, V100-32GB").accelerators
    assert [device.name for device in accelerators] == [f"cuda:{i}" for i in range(4)]
    assert [device.bf16 for device in accelerators] == [False, True, True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A1000", "'A1000' does not describe a machine"),
        ("0xA100-80GB", "'0xA100-80GB' does not describe a machine"),
        ("2000xT4", "'2000xT4': at most 1024 devices"),
        ("", "'' does not describe a machine"),
        ("24GB-gpu,, 8 cores", "'' does not describe a machine"),
        ("24GB-gup", "'24GB-gup' does not describe a machine"),
        ("16 cores, fast", "'fast' does not describe a machine"),
        ("24-gpu", "'24-gpu' does not describe"),
        ("24Gbit-gpu", "'24Gbit-gpu' does not describe"),
        ("-1 cores", "'-1 cores' does not describe"),
        ("2,5 cores", "'2' does not describe"),
        ("2 4GB-gpu", "'2 4GB-gpu' does not describe"),
        ("1.5x24GB-gpu", "'1.5x24GB-gpu' does not describe"),
        ("16GB-tpu@40TFLOPS", "'16GB-tpu@40TFLOPS' does not describe"),
        ("16GB-tpu-fp16", "'16GB-tpu-fp16' does not describe"),
        ("9" * 400 + "GB", "9GB' does not describe"),
        ("1e3 cores", "'1e3 cores' does not describe"),
        ("nan cores", "'nan cores' does not describe"),
        ("0x24GB-gpu", "'0x24GB-gpu': must be above zero"),
        ("2x0GB-gpu", "'2x0GB-gpu': must be above zero"),
        ("24GB-gpu@0TFLOPS", "'24GB-gpu@0TFLOPS': must be above zero"),
        ("0 cores", "'0 cores': must be above zero"),
        ("0.0 cores", "'0.0 cores': must be above zero"),
        ("0GB", "'0GB': must be above zero"),
        ("0 NUMA nodes", "'0 NUMA nodes': must be above zero"),
        ("100000x24GB-gpu", "'100000x24GB-gpu': at most 1024 devices"),
        ("8 cores, 64GB, 9 cores", "'9 cores': there is '8 cores' already"),
        ("64GB, 64GB", "'64GB': there is '64GB' already"),
        ("1 NUMA node, 2 NUMA nodes", "'2 NUMA nodes': there is '1 NUMA node' already"),
    ],
)
def test_what_cannot_be_is_refused_with_its_word(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        assumed_machine(text)
    assert caught.value.message.startswith(f"assume={text}: ")
    assert message in caught.value.message
    assert "24GB-gpu" in caught.value.advice
    assert "RTX-4090" in caught.value.advice


def test_the_smallest_sizes_are_some_bytes() -> None:
    assert assumed_machine("0.001kB, 0.001kB-gpu").memory_bytes == 1


def test_a_machine_that_was_written_is_read(tmp_path: Path) -> None:
    machine = assumed_machine("2x24GB-gpu@40TFLOPS, 4.5 cores")
    file = tmp_path / "there.json"
    file.write_text(json.dumps(machine.tree()))
    assert assumed_machine(str(file)) == machine


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file"),
        ("{", "not JSON"),
        (
            json.dumps(assumed_machine("8 cores").tree() | {"coers": 2}),
            "coers: no such setting; did you mean",
        ),
    ],
)
def test_a_file_that_is_none_is_refused_with_its_path(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "there.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError) as caught:
        assumed_machine(str(file))
    assert caught.value.message.startswith(f"assume={file}: ")
    assert message in caught.value.message


def test_a_missing_file_is_known_by_its_ending() -> None:
    with pytest.raises(UsageError, match=r"assume=nowhere\.json: No such file"):
        assumed_machine("nowhere.json")
