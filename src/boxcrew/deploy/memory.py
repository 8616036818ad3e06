"""How this process keeps its memory, and how it is told that there is no more."""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import torch

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h
_MIB = 1 << 20
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
MALLOC_WISHES: tuple[tuple[int, int], ...] = (
    (_M_MMAP_THRESHOLD, 1024 * _MIB),
    (_M_TRIM_THRESHOLD, 2047 * _MIB),
    (_M_TOP_PAD, 64 * _MIB),
)
_WORDS = ("not enough memory", "DefaultCPUAllocator: can't allocate", "could not create a primitive")
"""Of torch on CPUs; the last are oneDNN's, who does not say why."""


def is_out_of_memory(error: Exception) -> bool:
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or any(words in str(error) for words in _WORDS)


def keep_freed_memory() -> bool:
    """Tells the C library's allocator to keep what is freed for the next step instead of handing it back.

    A training step on a CPU frees and asks again for the same hundreds of megabytes; by default each large
    block is returned to the system and cleared anew at its first touch, which costs a quarter to a third of
    the step (see docs/decisions/0005). Gives whether the allocator is one that can be told.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return all(library.mallopt(number, value) == 1 for number, value in MALLOC_WISHES)


def peak_memory(device: str) -> int | None:
    """Bytes so far: of the device's tensors if it has memory of its own, else of this process. None where
    nobody counts.
    """
    if device != "cpu":
        module = torch.get_device_module(device.partition(":")[0])
        return int(module.max_memory_allocated(device)) if hasattr(module, "max_memory_allocated") else None
    # Not what the system says of resources: that is also of the process that started this one.
    found = re.search(r"VmHWM:\s*(\d+) kB", _STATUS.read_text()) if _STATUS.is_file() else None
    if found is not None:
        return 1024 * int(found[1])
    import resource  # not on Windows

    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def forget_peak() -> None:
    """From here on `peak_memory` of the CPU is that of what follows, where the system (Linux) can do it."""
    with suppress(OSError):
        _CLEAR.write_text("5")


def taken() -> int:
    """Bytes of memory that count for `limited`, by now."""
    return int(psutil.Process().memory_info().data) if platform.system() == "Linux" else 0


@contextmanager
def limited(num_bytes: int) -> Iterator[None]:
    """Inside, the system refuses this process more memory of its own than that: torch then says that there
    is not enough, which can be dealt with, where the machine would else begin to swap or kill. Memory shared
    with loader processes does not count. Only Linux counts it so.
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
