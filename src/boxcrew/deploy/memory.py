"""How this process keeps its memory, and how it is told that there is no more."""

from __future__ import annotations

import ctypes
import platform

import torch

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h
_MIB = 1 << 20
_WORDS = ("not enough memory", "DefaultCPUAllocator: can't allocate")  # of torch on CPUs


def is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in _WORDS)


def keep_freed_memory() -> bool:
    """Tells the C library's allocator to keep what is freed for the next step instead of handing it back.

    A training step on a CPU frees and asks again for the same hundreds of megabytes; by default each large
    block is returned to the system and cleared anew at its first touch, which costs a quarter to a third of
    the step (see docs/decisions/0005). Gives whether the allocator is one that can be told.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    wishes = ((_M_MMAP_THRESHOLD, 1024 * _MIB), (_M_TRIM_THRESHOLD, 2047 * _MIB), (_M_TOP_PAD, 64 * _MIB))
    return all(library.mallopt(number, value) == 1 for number, value in wishes)
