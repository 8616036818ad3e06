"""The limits of this process, with a container's control groups as real files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from boxcrew.hardware import probe

MIB = 1 << 20


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(probe, "_CGROUP", tmp_path)
    monkeypatch.setattr(probe, "_OWN_GROUPS", tmp_path / "own")
    return tmp_path


def test_without_limits_it_is_the_hosts(cgroup: Path) -> None:
    assert probe.usable_memory() == psutil.virtual_memory().total
    assert probe.usable_cores() == len(os.sched_getaffinity(0))


def test_limits_that_limit_nothing(cgroup: Path) -> None:
    (cgroup / "cpu.max").write_text("max 100000\n")
    (cgroup / "memory.max").write_text("max\n")
    assert probe.usable_memory() == psutil.virtual_memory().total
    assert probe.usable_cores() == len(os.sched_getaffinity(0))
    (cgroup / "cpu.max").write_text("99900000 100000\n")
    (cgroup / "memory.max").write_text(f"{1 << 60}\n")
    assert probe.usable_memory() == psutil.virtual_memory().total
    assert probe.usable_cores() == len(os.sched_getaffinity(0))


def test_a_containers_limits_count(cgroup: Path) -> None:
    (cgroup / "cpu.max").write_text("50000 100000\n")
    (cgroup / "memory.max").write_text(f"{300 * MIB}\n")
    assert probe.usable_cores() == 0.5
    assert probe.usable_memory() == 300 * MIB
    machine = probe.probe_machine()
    assert machine.cores == 0.5
    assert machine.memory_bytes == machine.devices[0].memory_bytes == 300 * MIB


@pytest.mark.parametrize(
    ("own", "place", "name"),
    [
        ("0::/job/step", "job", "memory.max"),
        ("0::/job/step", "job/step", "memory.max"),
        ("5:cpu,memory:/job\n1:name=systemd:/", "memory/job", "memory.limit_in_bytes"),
        ("4:memory:/", "memory", "memory.limit_in_bytes"),
    ],
)
def test_a_jobs_limits_count_wherever_they_are_set(cgroup: Path, own: str, place: str, name: str) -> None:
    (cgroup / "own").write_text(own + "\n")
    (cgroup / place).mkdir(parents=True, exist_ok=True)
    (cgroup / place / name).write_text(f"{200 * MIB}\n")
    assert probe.usable_memory() == 200 * MIB


@pytest.mark.parametrize(
    ("own", "files", "left"),
    [
        ("", {"memory.max": 300, "memory.current": 100}, 200),
        ("", {"memory.max": 300}, 300),
        ("", {"memory.max": 300, "memory.current": 310}, 0),
        ("0::/job/step", {"job/memory.max": 300, "job/memory.current": 100}, 200),
        (
            "0::/job",
            {"memory.max": 300, "memory.current": 250, "job/memory.max": 100, "job/memory.current": 10},
            50,
        ),
        (
            "4:memory:/job",
            {"memory/job/memory.limit_in_bytes": 300, "memory/job/memory.usage_in_bytes": 40},
            260,
        ),
    ],
)
def test_what_is_left_of_a_limit_is_free(cgroup: Path, own: str, files: dict[str, int], left: int) -> None:
    """Return the memory in MiB."""
    (cgroup / "own").write_text(own)
    for name, size in files.items():
        (cgroup / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroup / name).write_text(f"{size * MIB}\n")
    assert probe.free_memory() == left * MIB


@pytest.mark.parametrize(
    ("folder", "limit", "used", "cached"),
    [
        (".", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ],
)
def test_files_in_memory_make_way(cgroup: Path, folder: str, limit: str, used: str, cached: str) -> None:
    (cgroup / folder).mkdir(exist_ok=True)
    (cgroup / folder / limit).write_text(f"{300 * MIB}\n")
    (cgroup / folder / used).write_text(f"{290 * MIB}\n")
    (cgroup / folder / "memory.stat").write_text(f"anon 5\n{cached} {190 * MIB}\nactive_file 7\n")
    assert probe.free_memory() == 200 * MIB
    (cgroup / folder / "memory.stat").write_text(f"{cached} {999 * MIB}\n")  # counted a moment later
    assert probe.free_memory() == 300 * MIB


@pytest.mark.parametrize("limit", ["max", str(1 << 60)])
def test_without_a_limit_what_the_host_has_is_free(
    cgroup: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=7 * MIB))
    (cgroup / "memory.max").write_text(limit)
    (cgroup / "memory.current").write_text(f"{100 * MIB}\n")
    assert probe.free_memory() == 7 * MIB


@pytest.mark.parametrize(
    ("others", "allowed", "cores", "taken"),
    [
        (0.0, 4, 4.0, 0.0),
        (1.26, 4, 4.0, 1.3),
        (-0.3, 4, 4.0, 0.0),  # clocks are coarse
        (4.2, 4, 4.0, 4.0),
        (0.75, 1, 0.75, 0.5),
        (1.0, 1, 0.75, 0.75),  # not 0.8: no more than there are
        (30.0, 64, 2.0, 0.0),  # enough is left for our quota
        (63.0, 64, 2.0, 1.0),
    ],
)
def test_cores_that_others_take(others: float, allowed: int, cores: float, taken: float) -> None:
    assert probe.lost_cores(others, num_allowed=allowed, cores=cores) == taken


@pytest.fixture
def on_one_core() -> Iterator[int]:
    """The number of the only one this process may run on."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    yield max(allowed)
    os.sched_setaffinity(0, allowed)


@pytest.mark.usefixtures("cgroup", "on_one_core")
def test_a_busy_process_beside_us_is_seen() -> None:
    words = [sys.executable, "-S", "-c", "print(flush=True)\nwhile True: pass"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:  # may run where we may
        try:
            assert other.stdout is not None
            other.stdout.readline()
            assert 0.6 <= probe.probe_machine().busy_cores <= 1
        finally:
            other.kill()


@pytest.mark.parametrize(("here", "elsewhere", "least", "most"), [(0.0, 100.0, 0, 0), (100.0, 0.0, 0.7, 1)])
def test_only_cores_we_may_run_on_count(
    cgroup: Path,
    on_one_core: int,
    monkeypatch: pytest.MonkeyPatch,
    here: float,
    elsewhere: float,
    least: float,
    most: float,
) -> None:
    def watched(interval: float, percpu: bool) -> list[float]:
        time.sleep(interval)
        return [here if cpu == on_one_core else elsewhere for cpu in range(os.cpu_count() or 1)]

    monkeypatch.setattr(psutil, "cpu_percent", watched)
    assert least <= probe.probe_machine().busy_cores <= most


def test_our_own_work_is_not_that_of_others(
    cgroup: Path, on_one_core: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = 0.0

    def all_busy(interval: float, percpu: bool) -> list[float]:
        nonlocal own
        start, used = time.perf_counter(), time.process_time()
        while time.perf_counter() < start + interval:
            pass
        own = (time.process_time() - used) / (time.perf_counter() - start)
        return [100.0] * (os.cpu_count() or 1)

    monkeypatch.setattr(psutil, "cpu_percent", all_busy)
    assert probe.probe_machine().busy_cores == pytest.approx(1 - own, abs=0.2)


def test_affinity_counts(cgroup: Path) -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert probe.usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_this_machine() -> None:
    machine = probe.probe_machine()
    cpu = machine.devices[0]
    assert (cpu.name, cpu.kind) == ("cpu", "cpu")
    assert cpu.model
    assert machine.torch == torch.__version__
    assert bool(machine.accelerators) == torch.accelerator.is_available()
    for device in machine.devices:
        torch.device(device.name)
        assert device.memory_bytes > 0
    assert 0 <= machine.busy_cores <= machine.cores
    assert cpu.free_bytes is not None
    assert 0 < cpu.free_bytes <= cpu.memory_bytes


@pytest.mark.parametrize(
    ("own", "files"),
    [
        ("0::/job/step", {"job/cpu.max": "150000 100000"}),
        ("0::/job/step", {"job/step/cpu.max": "150000 100000", "cpu.max": "max 100000"}),
        ("5:cpu,cpuacct:/job", {"cpu/job/cpu.cfs_quota_us": "150000", "cpu/job/cpu.cfs_period_us": "100000"}),
    ],
)
def test_a_jobs_share_of_the_cores_counts(cgroup: Path, own: str, files: dict[str, str]) -> None:
    (cgroup / "own").write_text(own + "\n")
    for name, text in files.items():
        (cgroup / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroup / name).write_text(text + "\n")
    assert probe.usable_cores() == min(1.5, len(os.sched_getaffinity(0)))


def test_no_quota_in_the_first_version_is_minus_one(cgroup: Path) -> None:
    (cgroup / "cpu").mkdir()
    (cgroup / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    (cgroup / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert probe.usable_cores() == len(os.sched_getaffinity(0))


class FakeCuda:
    """A stand-in for `torch.cuda` of a machine with an old and a new device."""

    @staticmethod
    def get_device_properties(index: int) -> SimpleNamespace:
        return SimpleNamespace(name=f"GPU {index}", total_memory=(index + 1) * MIB, major=(7, 9)[index])


def test_what_torch_tells_about_accelerators() -> None:
    module = FakeCuda()
    old, new = (probe.accelerator(module, "cuda", index) for index in (0, 1))
    assert (old.name, old.model, old.memory_bytes, old.bf16) == ("cuda:0", "GPU 0", MIB, False)
    assert (new.name, new.model, new.memory_bytes, new.bf16) == ("cuda:1", "GPU 1", 2 * MIB, True)


def test_tpus_by_torch_xla(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of that name, which tells what torch_xla's documentation says that it tells."""
    (tmp_path / "torch_xla" / "core").mkdir(parents=True)
    (tmp_path / "torch_xla" / "__init__.py").write_text(
        "import torch\ndef devices(): return [torch.device('xla', i) for i in range(3)]\n"
    )
    (tmp_path / "torch_xla" / "core" / "__init__.py").write_text("")
    (tmp_path / "torch_xla" / "core" / "xla_model.py").write_text(
        "def xla_device_hw(device): return ('TPU', 'TPU', 'CPU')[device.index]\n"
        "told = ({'bytes_limit': 2**34, 'bytes_used': 2**33}, {'kb_total': 2**24, 'kb_free': 2**20}, {})\n"
        "def get_memory_info(device): return told[device.index]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    *_, first, second = probe.probe_machine().devices
    assert (first.name, first.kind, first.model, first.memory_bytes) == ("xla:0", "xla", "TPU", 2**34)
    assert (second.name, second.memory_bytes, second.bf16) == ("xla:1", 2**34, True)
    assert (first.free_bytes, second.free_bytes) == (2**33, 2**30)
    for name in [name for name in sys.modules if name.startswith("torch_xla")]:
        del sys.modules[name]  # for good: nobody else is to find it


def test_accelerators_that_tell_less() -> None:
    apple = probe.accelerator(SimpleNamespace(recommended_max_memory=lambda: 5 * MIB), "mps", 0)
    assert (apple.name, apple.model, apple.memory_bytes, apple.bf16) == ("mps:0", "mps", 5 * MIB, False)
    coming = probe.accelerator(SimpleNamespace(mem_get_info=lambda index: (1, (3 + index) * MIB)), "npu", 1)
    assert (coming.name, coming.kind, coming.memory_bytes) == ("npu:1", "npu", 4 * MIB)


def test_parts_of_the_memory_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_NODES", tmp_path)
    assert probe.probe_machine().numa_nodes == 1
    monkeypatch.setattr(probe, "_allowed", lambda: {0, 1})
    for name in ("node0/cpu0", "node1/cpu1", "node2/cpu2", "node3", "possible"):
        (tmp_path / name).mkdir(parents=True)
    assert probe.probe_machine().numa_nodes == 2  # with cores that we may use
