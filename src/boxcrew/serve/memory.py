"""Keeps the memory of the process small: what photos have used is given back to the system."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from functools import cache

from boxcrew.serve.admission import Admission

_ARENAS, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -8, -3, -1  # parameters of glibc's mallopt
_LARGE = 16 * 1024 * 1024  # bytes of a block that is given back as soon as it is free
_INTERVAL = 0.4  # seconds without a photo after which what is free is given back
_KEPT = 24 * 1024 * 1024  # free bytes that are kept at the end of the heap


def limit_free_memory() -> None:
    """Let all threads share one heap, and large blocks be given back at once. Without glibc nothing is
    changed. To be called before there are threads.
    """
    libc = _libc()
    if libc is not None:
        for parameter, value in ((_ARENAS, 1), (_MMAP_THRESHOLD, _LARGE), (_TRIM_THRESHOLD, _KEPT)):
            libc.mallopt(parameter, value)


def return_free_memory() -> None:
    """Give all free memory back to the system, which takes some milliseconds. Errors of photos that were
    refused refer to themselves and to the photos, so that only a collection frees them.
    """
    gc.collect()
    libc = _libc()
    if libc is not None:
        libc.malloc_trim(0)


async def stay_small(admission: Admission) -> None:
    """Give back what photos have used as soon as none comes any more, for ever. Between two photos, the next
    one would have to fetch it again.
    """
    num_done = num_returned = 0
    while True:
        await asyncio.sleep(_INTERVAL)
        is_idle = admission.num_photos == 0 and admission.num_done == num_done
        num_done = admission.num_done
        if is_idle and num_done != num_returned:
            num_returned = num_done
            await asyncio.to_thread(return_free_memory)


@cache
def _libc() -> ctypes.CDLL | None:
    """Return glibc, or None where the process uses another library."""
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return None
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
