"""What this host has."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
from pathlib import Path
from typing import Any

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
        devices=(cpu, *_accelerators(), *_xla_devices()),
    )


def usable_cores() -> float:
    """Cores this process may use at once: its affinity, and the container's quota if there is one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([float(allowed), *_quotas()])


def usable_memory() -> int:
    """Bytes of RAM this process may use: the host's, or the limit of its container or job if that is less."""
    limits = [
        *(_read(group / "memory.max").strip() for group in _groups("")),
        *(_read(group / "memory.limit_in_bytes").strip() for group in _groups("memory")),
    ]
    return min([int(psutil.virtual_memory().total), *(int(limit) for limit in limits if limit.isdigit())])


def _quotas() -> list[float]:
    """Cores that control groups allow on average: `max 100000`, or microseconds out of so many."""
    pairs = [_read(group / "cpu.max").split() for group in _groups("")]
    pairs += [
        [_read(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        for group in _groups("cpu")
    ]
    return [
        int(pair[0]) / int(pair[1])
        for pair in pairs
        if len(pair) == 2 and all(number.isdigit() for number in pair) and int(pair[1])
    ]


def _groups(controller: str) -> list[Path]:
    """The process's own control group and all above it: of the second version of these without a
    `controller`, else of the first.
    """
    root = _CGROUP / controller
    found = [root]
    for line in _read(_OWN_GROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            own = root / path.strip("/")
            found += [group for group in (own, *own.parents) if group.is_relative_to(root)]
    return list(dict.fromkeys(found))


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
    """By torch's common interface, so that a kind of device it learns to know needs no new branch here; such
    as TPUs by `torch_tpu`.
    """
    found = torch.accelerator.current_accelerator(check_available=True)
    if found is None:
        return ()
    module = torch.get_device_module(found.type)
    return tuple(accelerator(module, found.type, index) for index in range(torch.accelerator.device_count()))


def accelerator(module: Any, kind: str, index: int) -> Device:
    """What torch's `module` for devices of this kind (`torch.cuda`, …) tells about one of them."""
    properties = module.get_device_properties(index) if hasattr(module, "get_device_properties") else None
    return Device(
        name=f"{kind}:{index}",
        kind=kind,
        model=getattr(properties, "name", kind),
        memory_bytes=getattr(properties, "total_memory", 0) or _memory(module, index),
        bf16=_computes_bf16(module, properties),
    )


def _xla_devices() -> tuple[Device, ...]:
    """TPUs by `torch_xla`, which is older than that interface, and takes long to import."""
    if importlib.util.find_spec("torch_xla") is None:
        return ()
    return xla_devices(
        importlib.import_module("torch_xla"), importlib.import_module("torch_xla.core.xla_model")
    )


def xla_devices(xla: Any, model: Any) -> tuple[Device, ...]:
    """What the two modules of `torch_xla` tell. Without a TPU they have the CPU play one, which we have."""
    found = []
    for device in xla.devices():
        maker, memory = model.xla_device_hw(device), model.get_memory_info(device)
        if maker != "CPU":
            size = memory["bytes_limit"] if "bytes_limit" in memory else 1024 * memory["kb_total"]
            found.append(Device(name=str(device), kind="xla", model=maker, memory_bytes=size, bf16=True))
    return tuple(found)


def _memory(module: Any, index: int) -> int:
    """Of a device whose properties do not say."""
    if hasattr(module, "recommended_max_memory"):  # Apple's share the main memory
        return int(module.recommended_max_memory())
    return int(module.mem_get_info(index)[1])


def _computes_bf16(module: Any, properties: Any) -> bool:
    """NVIDIA's do since Ampere. Asking torch for each would open a context there, which takes memory."""
    if hasattr(properties, "major") and torch.version.hip is None:
        return int(properties.major) >= 8
    return hasattr(module, "is_bf16_supported") and bool(module.is_bf16_supported(including_emulation=False))
