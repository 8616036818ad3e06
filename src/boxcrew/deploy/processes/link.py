"""The speed of the network between the hosts of a run, measured by the messages that training sends."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from boxcrew.hardware.machine import Link

SMALLEST, LARGEST = 64 << 10, 8 << 20  # bytes of a message
LONG_ENOUGH = 0.15  # seconds of a message after which no larger one is sent: all of them take under a second
_SMALL_MESSAGES = 5


def measure_link(all_reduce: Callable[[Tensor], object], num_replicas: int) -> Link:
    """Return the link between replicas that all call this at once. Since all wait for the slowest of them, it
    is that of the slowest.
    """
    all_reduce(torch.zeros(1))  # the first makes the connections
    latency = min(_seconds(all_reduce, 1) for _ in range(_SMALL_MESSAGES))
    size, seconds = SMALLEST, 0.0
    while True:
        agreed = torch.tensor([_seconds(all_reduce, size // 4)], dtype=torch.float64)
        all_reduce(agreed)  # so that all send as many messages
        seconds = float(agreed) / num_replicas
        if seconds >= LONG_ENOUGH or size >= LARGEST:
            break
        size = min(4 * size, LARGEST)
    sent = 2 * (num_replicas - 1) / num_replicas * size
    return Link(bytes_per_second=sent / max(seconds - latency, seconds / 2), seconds=latency)


def _seconds(all_reduce: Callable[[Tensor], object], num_values: int) -> float:
    values = torch.zeros(num_values)
    begun = time.perf_counter()
    all_reduce(values)
    return time.perf_counter() - begun
