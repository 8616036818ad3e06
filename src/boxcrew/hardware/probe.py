"""What this host has."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil
import torch

from boxcrew.hardware.machine import Device, Machine

_CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


def probe_machine() -> Machine:
    memory = usable_memory()
    cpu = Device(name="cpu", kind="cpu", model=_cpu_model(), memory_bytes=memory)
    return Machine(
        platform=platform.platform(),
        python=platform.python_version(),
        torch=torch.__version__,
        cores=usable_cores(),
        memory_bytes=memory,
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


def _cuda_device(index: int) -> Device:
    properties = torch.cuda.get_device_properties(index)
    with torch.cuda.device(index):
        bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return Device(
        name=f"cuda:{index}",
        kind="cuda",
        model=properties.name,
        memory_bytes=properties.total_memory,
        bf16=bf16,
    )


def _accelerators() -> tuple[Device, ...]:
    if torch.cuda.is_available():
        return tuple(_cuda_device(i) for i in range(torch.cuda.device_count()))
    if torch.xpu.is_available():
        found = [torch.xpu.get_device_properties(i) for i in range(torch.xpu.device_count())]
        return tuple(
            Device(name=f"xpu:{i}", kind="xpu", model=p.name, memory_bytes=p.total_memory)
            for i, p in enumerate(found)
        )
    if torch.backends.mps.is_available():
        memory = torch.mps.recommended_max_memory()
        return (Device(name="mps", kind="mps", model="Apple GPU", memory_bytes=memory),)
    return ()
