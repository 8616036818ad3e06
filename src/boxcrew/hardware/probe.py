"""The hardware of this host, within the limits of the process's container or job."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from boxcrew.hardware.machine import Device, Machine

_CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_NODES = Path("/sys/devices/system/node")
_MEMORY_GROUPS = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Of versions 2 and 1: the controller, files with limit and use, and the statistic of inactive files."""


def probe_machine() -> Machine:
    import torch

    memory, cores = usable_memory(), usable_cores()
    named = re.search(r"^model name\s*:(.*)", _read(Path("/proc/cpuinfo")), re.MULTILINE)
    model = named[1].strip() if named else platform.processor() or platform.machine()
    cpu = Device(name="cpu", kind="cpu", model=model, memory_bytes=memory, free_bytes=free_memory())
    return Machine(
        platform=platform.platform(),
        python=platform.python_version(),
        torch=torch.__version__,
        cores=cores,
        busy_cores=lost_cores(_cores_of_others(), num_allowed=len(_allowed()), cores=cores),
        memory_bytes=memory,
        numa_nodes=len({node for core, node in _nodes().items() if core in _allowed()}) or 1,
        devices=(cpu, *_accelerators(), *_xla_devices()),
    )


def usable_cores() -> float:
    """Return the cores this process may use at once, by its affinity and the container's quota."""
    return min([float(len(_allowed())), *_quotas()])


def lost_cores(others: float, *, num_allowed: int, cores: float) -> float:
    """Return how many of our `cores` are lost while other processes use `others` of the allowed ones.

    With a quota below `num_allowed`, others first use what the quota denies us anyway.
    """
    return min(cores, round(max(0.0, others - (num_allowed - cores)), 1))


def usable_memory() -> int:
    """Return the bytes of RAM this process may use: the host's, or the limit of its container or job."""
    return min([int(psutil.virtual_memory().total), *(limit for limit, _ in _memory_limits())])


def free_memory() -> int:
    """Return the bytes of RAM that are left to this process. Inactive cached files count as free."""
    return min([int(psutil.virtual_memory().available), *(left for _, left in _memory_limits())])


def _memory_limits() -> Iterator[tuple[int, int]]:
    """Yield the limit of every control group that has one, and how many bytes are left of it."""
    for controller, limit_file, used_file, files in _MEMORY_GROUPS:
        for group in _groups(controller):
            limit = _read(group / limit_file).strip()
            if limit.isdigit():
                stat = dict(line.split() for line in _read(group / "memory.stat").splitlines())
                active = int(_read(group / used_file).strip() or 0) - int(stat.get(files, 0))
                yield int(limit), int(limit) - min(max(0, active), int(limit))


def _allowed() -> set[int]:
    """Return the indices of the CPUs this process may run on."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _cores_of_others() -> float:
    """Return how many of the allowed cores other processes use at present."""
    own_times, start = psutil.Process().cpu_times, time.perf_counter()
    own = sum(own_times()[:2])  # seconds of user and system
    try:
        percent = psutil.cpu_percent(interval=0.1, percpu=True)
    except (OSError, psutil.Error):  # a system without these counters
        return 0.0
    own_cores = (sum(own_times()[:2]) - own) / (time.perf_counter() - start)
    return sum(percent[cpu] for cpu in _allowed() if cpu < len(percent)) / 100 - own_cores


def _quotas() -> list[float]:
    """Return the cores that control groups allow on average: `max 100000`, or microseconds per period."""
    newer = (_read(group / "cpu.max") for group in _groups(""))
    older = (_read(g / "cpu.cfs_quota_us") + " " + _read(g / "cpu.cfs_period_us") for g in _groups("cpu"))
    pairs = [re.fullmatch(r"(\d+)\s+(\d*[1-9]\d*)\s*", text) for text in (*newer, *older)]
    return [int(pair[1]) / int(pair[2]) for pair in pairs if pair]


def _groups(controller: str) -> list[Path]:
    """Return the control group of this process and all above it, of version 1 with this `controller` or of
    version 2.
    """
    root = _CGROUP / controller
    groups = [root]
    for line in _read(_OWN_GROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            own = root / path.strip("/")
            groups += [group for group in (own, *own.parents) if group.is_relative_to(root)]
    return list(dict.fromkeys(groups))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:  # no such control group: no limit
        return ""


def cores_by_node() -> list[int]:
    """Return the cores that this process may use, ordered by NUMA node."""
    nodes = _nodes()
    return sorted(_allowed(), key=lambda core: (nodes.get(core, 0), core))


def _nodes() -> dict[int, int]:
    """Return the NUMA node of every core."""
    paths = _NODES.glob("node[0-9]*/cpu[0-9]*")
    return {int(path.name.removeprefix("cpu")): int(path.parent.name.removeprefix("node")) for path in paths}


def _accelerators() -> tuple[Device, ...]:
    """Return the accelerators of torch's common interface, which new kinds join (TPUs by `torch_tpu`)."""
    import torch

    current = torch.accelerator.current_accelerator(check_available=True)
    if current is None:
        return ()
    module = torch.get_device_module(current.type)
    return tuple(accelerator(module, current.type, i) for i in range(torch.accelerator.device_count()))


def accelerator(module: Any, kind: str, index: int) -> Device:
    """Describe a device by the properties in torch's `module` for its kind, such as `torch.cuda`."""
    import torch

    properties = module.get_device_properties(index) if hasattr(module, "get_device_properties") else None
    memory = getattr(properties, "total_memory", 0)
    if not memory:  # Apple's share the main memory
        is_apple = hasattr(module, "recommended_max_memory")
        memory = int(module.recommended_max_memory() if is_apple else module.mem_get_info(index)[1])
    major = getattr(properties, "major", None)
    if major is not None and torch.version.hip is None:
        bf16 = int(major) >= 8  # NVIDIA's since Ampere; asking torch would take memory on each of them
    else:
        bf16 = hasattr(module, "is_bf16_supported") and module.is_bf16_supported(including_emulation=False)
    name, model = f"{kind}:{index}", getattr(properties, "name", kind)
    return Device(name=name, kind=kind, model=model, memory_bytes=memory, bf16=bool(bf16))


def _xla_devices() -> Iterator[Device]:
    """Yield TPUs by `torch_xla`, which is slow to import. Without one it offers the CPU: left out."""
    if importlib.util.find_spec("torch_xla") is None:
        return
    model = importlib.import_module("torch_xla.core.xla_model")
    for device in importlib.import_module("torch_xla").devices():
        maker, memory = model.xla_device_hw(device), model.get_memory_info(device)
        if maker != "CPU":
            newer, name = "bytes_limit" in memory, str(device)
            size = memory["bytes_limit"] if newer else 1024 * memory["kb_total"]
            free = size - memory["bytes_used"] if newer else 1024 * memory["kb_free"]
            yield Device(name=name, kind="xla", model=maker, memory_bytes=size, free_bytes=free, bf16=True)
