"""What this host has."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import torch

from boxcrew.hardware.machine import Device, Machine

_CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_NODES = Path("/sys/devices/system/node")
_LOOK = 0.1  # seconds that others are watched for


def probe_machine() -> Machine:
    memory, cores = usable_memory(), usable_cores()
    cpu = Device(name="cpu", kind="cpu", model=_cpu_model(), memory_bytes=memory, free_bytes=free_memory())
    return Machine(
        platform=platform.platform(),
        python=platform.python_version(),
        torch=torch.__version__,
        cores=cores,
        busy_cores=taken_cores(_cores_of_others(), num_allowed=len(_allowed()), cores=cores),
        memory_bytes=memory,
        numa_nodes=_numa_nodes(),
        devices=(cpu, *_accelerators(), *_xla_devices()),
    )


def usable_cores() -> float:
    """Cores this process may use at once: its affinity, and the container's quota if there is one."""
    return min([float(len(_allowed())), *_quotas()])


def taken_cores(others: float, *, num_allowed: int, cores: float) -> float:
    """How many of our `cores` are gone while `others` use as many of those that we are allowed to run on.

    A quota may be less than these: then others first use what is too much for us anyway.
    """
    gone = others - (num_allowed - cores)
    return min(cores, round(max(0.0, gone), 1))


def usable_memory() -> int:
    """Bytes of RAM this process may use: the host's, or the limit of its container or job if that is less."""
    limits = [
        *(_read(group / "memory.max").strip() for group in _groups("")),
        *(_read(group / "memory.limit_in_bytes").strip() for group in _groups("memory")),
    ]
    return min([int(psutil.virtual_memory().total), *(int(limit) for limit in limits if limit.isdigit())])


def free_memory() -> int:
    """Bytes of RAM this process could still get: the host's, or what is left of the limit of its container or
    job if that is less. Files that were read, and not lately, make way.
    """
    left = [
        *(_left(group, "memory.max", "memory.current", "inactive_file") for group in _groups("")),
        *(
            _left(group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            for group in _groups("memory")
        ),
    ]
    return min([int(psutil.virtual_memory().available), *(size for size in left if size is not None)])


def _left(group: Path, limit: str, used: str, files: str) -> int | None:
    """Bytes; None: this group has no limit."""
    most, now = _read(group / limit).strip(), _read(group / used).strip()
    if not most.isdigit():
        return None
    stat = dict(line.split() for line in _read(group / "memory.stat").splitlines())
    kept = int(now or 0) - int(stat.get(files, 0))
    return int(most) - min(max(0, kept), int(most))


def _allowed() -> set[int]:
    """The CPUs this process may run on."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _cores_of_others() -> float:
    """Of the allowed ones, in use for a moment by all but this process."""
    allowed, begun, own = _allowed(), time.perf_counter(), _own_seconds()
    try:
        percent = psutil.cpu_percent(interval=_LOOK, percpu=True)
    except (OSError, psutil.Error):  # a system that does not tell
        return 0.0
    own_cores = (_own_seconds() - own) / (time.perf_counter() - begun)
    return sum(percent[cpu] for cpu in allowed if cpu < len(percent)) / 100 - own_cores


def _own_seconds() -> float:
    times = psutil.Process().cpu_times()
    return times.user + times.system


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
    """Those with cores that this process may use."""
    return len({node for core, node in _nodes().items() if core in _allowed()}) or 1


def cores_by_node() -> list[int]:
    """The cores that this process may use, those near to the same part of the memory together."""
    nodes = _nodes()
    return sorted(_allowed(), key=lambda core: (nodes.get(core, 0), core))


def _nodes() -> dict[int, int]:
    """Of every core, the part of the memory that is near to it."""
    places = _NODES.glob("node[0-9]*/cpu[0-9]*")
    return {
        int(place.name.removeprefix("cpu")): int(place.parent.name.removeprefix("node")) for place in places
    }


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
            size, free = _xla_memory(memory)
            found.append(
                Device(
                    name=str(device), kind="xla", model=maker, memory_bytes=size, free_bytes=free, bf16=True
                )
            )
    return tuple(found)


def _xla_memory(told: Mapping[str, int]) -> tuple[int, int]:
    """All and free bytes, as newer or older ones tell it."""
    if "bytes_limit" in told:
        return told["bytes_limit"], told["bytes_limit"] - told["bytes_used"]
    return 1024 * told["kb_total"], 1024 * told["kb_free"]


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
