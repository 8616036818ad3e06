"""What this host has."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from types import ModuleType

import psutil
import torch

from boxcrew.hardware.machine import Device, Machine

_CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_NODES = Path("/sys/devices/system/node")


def probe_machine() -> Machine:
    memory = usable_memory()
    cpu = Device(name="cpu", kind="cpu", model=_cpu_model(), memory_bytes=memory)
    return Machine(
        platform=platform.platform(),
        python=platform.python_version(),
        torch=torch.__version__,
        cores=usable_cores(),
        memory_bytes=memory,
        numa_nodes=_numa_nodes(),
        devices=(cpu, *_accelerators()),
    )


def usable_cores() -> float:
    """Cores this process may use at once: its affinity, and the container's quota if there is one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _read(_CGROUP / "cpu.max").split()
    if len(quota) == 2 and quota[0] != "max":
        return min(float(allowed), int(quota[0]) / int(quota[1]))
    return float(allowed)


def usable_memory() -> int:
    """Bytes of RAM this process may use: the host's, or the limit of its container or job if that is less."""
    limits = (_read(file).strip() for file in _memory_limit_files())
    return min([int(psutil.virtual_memory().total), *(int(limit) for limit in limits if limit.isdigit())])


def _memory_limit_files() -> list[Path]:
    """Of the process's own control group and all above it, in the first and the second version of these."""
    files = [_CGROUP / "memory.max"]
    for line in _read(_OWN_GROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, name = _CGROUP, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = _CGROUP / "memory", "memory.limit_in_bytes"
        else:
            continue
        own = root / path.strip("/")
        files += [group / name for group in (own, *own.parents) if group.is_relative_to(root)]
    return files


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:  # no such control group here: no limit
        return ""


def _cpu_model() -> str:
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _numa_nodes() -> int:
    return len(list(_NODES.glob("node[0-9]*"))) or 1


def _accelerators() -> tuple[Device, ...]:
    """By torch's common interface, so that a kind of device it learns to know needs no new branch here."""
    found = torch.accelerator.current_accelerator(check_available=True)
    if found is None:
        return ()
    return tuple(_accelerator(found.type, index) for index in range(torch.accelerator.device_count()))


def _accelerator(kind: str, index: int) -> Device:
    module = torch.get_device_module(kind)
    properties = module.get_device_properties(index) if hasattr(module, "get_device_properties") else None
    return Device.of(
        {
            "name": f"{kind}:{index}",
            "kind": kind,
            "model": getattr(properties, "name", kind),
            "memory_bytes": getattr(properties, "total_memory", 0) or _memory(module, index),
            "bf16": _computes_bf16(module, index),
        }
    )


def _memory(module: ModuleType, index: int) -> int:
    """Of a device whose properties do not say."""
    if hasattr(module, "recommended_max_memory"):  # Apple's share the main memory
        return int(module.recommended_max_memory())
    return int(torch.accelerator.get_memory_info(index)[1])


def _computes_bf16(module: ModuleType, index: int) -> bool:
    if not hasattr(module, "is_bf16_supported"):
        return False
    with torch.accelerator.device_index(index):
        return bool(module.is_bf16_supported(including_emulation=False))
