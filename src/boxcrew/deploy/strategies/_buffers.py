"""A module's buffers, kept in case what changes them is to be undone."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class KeptBuffers:
    """Copies of all buffers (statistics and counters of BatchNorms), made in place after the first time."""

    def __init__(self) -> None:
        self._kept: list[Tensor] = []

    def keep(self, module: nn.Module) -> None:
        now = list(module.buffers())
        if [(b.shape, b.dtype, b.device) for b in now] != [(b.shape, b.dtype, b.device) for b in self._kept]:
            self._kept = [buffer.clone() for buffer in now]
        elif now:
            torch._foreach_copy_(self._kept, now)

    def put_back(self, module: nn.Module) -> None:
        now = list(module.buffers())
        if now:
            torch._foreach_copy_(now, self._kept)
