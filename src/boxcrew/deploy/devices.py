"""The devices of this machine, by their names in plans, and the cores that a replica may use.

All that strategies ask of devices goes through `Devices`, so that tests can put the CPU's memory in the place
of accelerators that are not there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from boxcrew.hardware.probe import cores_by_node

_THREADS = Path("/proc/self/task")


class Devices:
    """Access to torch's devices by name, such as `cpu` or `cuda:1`."""

    def find(self, name: str) -> torch.device:
        return torch.device(name)

    def choose(self, name: str) -> None:
        """Make an accelerator torch's current one, which it uses where no index is given."""
        if self._is_current_kind(name):
            torch.accelerator.set_device_index(self.find(name))

    def limit(self, name: str, fraction: float) -> None:
        """Limit this process to a fraction of an accelerator's memory from now on, where torch can."""
        device = self.find(name)
        set_fraction = getattr(getattr(torch, device.type, None), "set_per_process_memory_fraction", None)
        if set_fraction is not None:
            set_fraction(fraction, *([device] if device.type != "mps" else []))  # of which there is only one

    def release(self, name: str) -> None:
        """Return memory that was freed, but kept by torch, to the device."""
        if self._is_current_kind(name):
            torch.accelerator.empty_cache()

    def _is_current_kind(self, name: str) -> bool:
        """Return whether `torch.accelerator` stands for devices of this kind here."""
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        return accelerator is not None and accelerator.type == self.find(name).type


@contextmanager
def on_own_cores(index: int, num: int) -> Iterator[None]:
    """Pin this process, and those it starts inside, to one of `num` slices of the cores, where possible."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    _pin(core_slice(cores_by_node(), index, num))
    try:
        yield
    finally:
        _pin(before)


def _pin(cores: Iterable[int]) -> None:
    """Pin all threads of this process; threads they start inherit it."""
    threads = [int(folder.name) for folder in _THREADS.iterdir()] if _THREADS.is_dir() else [0]
    for thread in threads:
        with suppress(OSError):  # it may have ended just now
            os.sched_setaffinity(thread, cores)


def core_slice(cores: Sequence[int], index: int, num: int) -> list[int]:
    """Return the `index`-th of `num` slices of consecutive cores, as equal as can be; at least one core."""
    begin, end = index * len(cores) // num, (index + 1) * len(cores) // num
    return list(cores[begin : max(end, begin + 1)])
