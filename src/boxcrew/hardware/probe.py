"""The hardware of this host, within the limits of the process's container or job."""

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
_INTERVAL = 0.1  # seconds for which the load of other processes is measured


def probe_machine() -> Machine:
    memory, cores = usable_memory(), usable_cores()
    cpu = Device(name="cpu", kind="cpu", model=_cpu_model(), memory_bytes=memory, free_bytes=free_memory())
    return Machine(
        platform=platform.platform(),
        python=platform.python_version(),
        torch=torch.__version__,
        cores=cores,
        busy_cores=lost_cores(_cores_of_others(), num_allowed=len(_allowed()), cores=cores),
        memory_bytes=memory,
        numa_nodes=_numa_nodes(),
        devices=(cpu, *_accelerators(), *_xla_devices()),
    )


def usable_cores() -> float:
    """Return the cores this process may use at once, by its affinity and the container's quota."""
    return min([float(len(_allowed())), *_quotas()])


def lost_cores(others: float, *, num_allowed: int, cores: float) -> float:
    """Return how many of our `cores` are lost while other processes use `others` of the allowed ones.

    With a quota below `num_allowed`, others first use what the quota denies us anyway.
    """
    lost = others - (num_allowed - cores)
    return min(cores, round(max(0.0, lost), 1))


def usable_memory() -> int:
    """Return the bytes of RAM this process may use: the host's, or the limit of its container or job."""
    limits = [
        *(_read(group / "memory.max").strip() for group in _groups("")),
        *(_read(group / "memory.limit_in_bytes").strip() for group in _groups("memory")),
    ]
    return min([int(psutil.virtual_memory().total), *(int(limit) for limit in limits if limit.isdigit())])


def free_memory() -> int:
    """Return the bytes of RAM that are left to this process. Inactive cached files count as free."""
    left = [
        *(_left(group, "memory.max", "memory.current", "inactive_file") for group in _groups("")),
        *(
            _left(group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            for group in _groups("memory")
        ),
    ]
    return min([int(psutil.virtual_memory().available), *(size for size in left if size is not None)])


def _left(group: Path, limit: str, used: str, files: str) -> int | None:
    """Return the bytes that are left in a control group; None if it has no limit."""
    most, now = _read(group / limit).strip(), _read(group / used).strip()
    if not most.isdigit():
        return None
    stat = dict(line.split() for line in _read(group / "memory.stat").splitlines())
    active = int(now or 0) - int(stat.get(files, 0))
    return int(most) - min(max(0, active), int(most))


def _allowed() -> set[int]:
    """Return the indices of the CPUs this process may run on."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _cores_of_others() -> float:
    """Return how many of the allowed cores other processes use at present."""
    allowed, begun, own = _allowed(), time.perf_counter(), _own_seconds()
    try:
        percent = psutil.cpu_percent(interval=_INTERVAL, percpu=True)
    except (OSError, psutil.Error):  # a system without these counters
        return 0.0
    own_cores = (_own_seconds() - own) / (time.perf_counter() - begun)
    return sum(percent[cpu] for cpu in allowed if cpu < len(percent)) / 100 - own_cores


def _own_seconds() -> float:
    times = psutil.Process().cpu_times()
    return times.user + times.system


def _quotas() -> list[float]:
    """Return the cores that control groups allow on average: `max 100000`, or microseconds per period."""
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
    """Return the process's own control group and all above it: of version 1 for a `controller`, else 2."""
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


def _cpu_model() -> str:
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _numa_nodes() -> int:
    """Return the number of NUMA nodes with cores that this process may use."""
    return len({node for core, node in _nodes().items() if core in _allowed()}) or 1


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
    current = torch.accelerator.current_accelerator(check_available=True)
    if current is None:
        return ()
    module = torch.get_device_module(current.type)
    return tuple(
        accelerator(module, current.type, index) for index in range(torch.accelerator.device_count())
    )


def accelerator(module: Any, kind: str, index: int) -> Device:
    """Describe a device by the properties in torch's `module` for its kind, such as `torch.cuda`."""
    properties = module.get_device_properties(index) if hasattr(module, "get_device_properties") else None
    return Device(
        name=f"{kind}:{index}",
        kind=kind,
        model=getattr(properties, "name", kind),
        memory_bytes=getattr(properties, "total_memory", 0) or _memory(module, index),
        bf16=_computes_bf16(module, properties),
    )


def _xla_devices() -> tuple[Device, ...]:
    """Return TPUs by `torch_xla`, which is older than the common interface and slow to import."""
    if importlib.util.find_spec("torch_xla") is None:
        return ()
    return xla_devices(
        importlib.import_module("torch_xla"), importlib.import_module("torch_xla.core.xla_model")
    )


def xla_devices(xla: Any, model: Any) -> tuple[Device, ...]:
    """Describe the TPUs that `torch_xla` finds. Without one it offers the CPU, which is left out."""
    devices = []
    for device in xla.devices():
        maker, memory = model.xla_device_hw(device), model.get_memory_info(device)
        if maker != "CPU":
            size, free = _xla_memory(memory)
            devices.append(
                Device(
                    name=str(device), kind="xla", model=maker, memory_bytes=size, free_bytes=free, bf16=True
                )
            )
    return tuple(devices)


def _xla_memory(info: Mapping[str, int]) -> tuple[int, int]:
    """Return the total and the free bytes, in the format of newer or older versions."""
    if "bytes_limit" in info:
        return info["bytes_limit"], info["bytes_limit"] - info["bytes_used"]
    return 1024 * info["kb_total"], 1024 * info["kb_free"]


def _memory(module: Any, index: int) -> int:
    """Return the bytes of a device whose properties do not have them."""
    if hasattr(module, "recommended_max_memory"):  # Apple's share the main memory
        return int(module.recommended_max_memory())
    return int(module.mem_get_info(index)[1])


def _computes_bf16(module: Any, properties: Any) -> bool:
    """True for NVIDIA devices since Ampere. Asking torch would open a context on each, which takes memory."""
    if hasattr(properties, "major") and torch.version.hip is None:
        return int(properties.major) >= 8
    return hasattr(module, "is_bf16_supported") and bool(module.is_bf16_supported(including_emulation=False))
