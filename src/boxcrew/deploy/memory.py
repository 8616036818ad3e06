"""The memory of this process: how the allocator keeps it, how much is used, and limits on it."""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import torch

_STATUS = Path("/proc/self/status")
MALLOC_OPTIONS: tuple[tuple[int, int], ...] = ((-3, 1024 << 20), (-1, 2047 << 20), (-2, 64 << 20))
"""M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_TOP_PAD of malloc.h, with their bytes."""
_OUT_OF_MEMORY = ("not enough memory", "DefaultCPUAllocator: can't allocate", "could not create a primitive")
"""Words in torch's errors on CPUs; the last are oneDNN's, which does not say why."""


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error means that memory ran out, on any device."""
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or any(words in str(error) for words in _OUT_OF_MEMORY)


def keep_freed_memory() -> bool:
    """Let the C library's allocator keep freed memory for the next step. Return whether it can (glibc only).

    A training step on a CPU frees and allocates the same hundreds of megabytes again and again; by default
    each large block is returned to the system and cleared anew at its first touch, which costs a quarter to
    a third of the step (see docs/decisions/0005).
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return all(library.mallopt(number, value) == 1 for number, value in MALLOC_OPTIONS)


def peak_memory(device: str) -> int | None:
    """Return the most bytes used so far, by tensors on an accelerator or this process; None if unknown."""
    if device != "cpu":
        module = torch.get_device_module(device.partition(":")[0])
        return int(module.max_memory_allocated(device)) if hasattr(module, "max_memory_allocated") else None
    # Not getrusage if it can be avoided: it includes the process that started this one.
    match = re.search(r"VmHWM:\s*(\d+) kB", _STATUS.read_text()) if _STATUS.is_file() else None
    if match is not None:
        return 1024 * int(match[1])
    import resource  # not on Windows

    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def reset_peak_memory() -> None:
    """Let `peak_memory` of the CPU start again from what is used now, where the system (Linux) can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def data_memory() -> int:
    """Return the bytes that count for `memory_limit`, as used now; 0 where nothing counts them."""
    return int(psutil.Process().memory_info().data) if platform.system() == "Linux" else 0


@contextmanager
def memory_limit(num_bytes: int) -> Iterator[None]:
    """Let the system refuse this process more than `num_bytes` inside. torch then raises an error, which can
    be handled, where the machine would begin to swap or kill. Memory shared with loader processes does not
    count. Linux only; elsewhere there is no limit.
    """
    if platform.system() != "Linux":
        yield
        return
    import resource  # not on Windows

    before = resource.getrlimit(resource.RLIMIT_DATA)
    hard = before[1] if before[1] != resource.RLIM_INFINITY else num_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (min(num_bytes, hard), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
