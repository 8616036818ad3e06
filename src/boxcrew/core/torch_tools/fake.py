"""Tensors without data, on devices that need not exist: they show where code mixes or waits for devices."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from boxcrew.core.torch_tools.dispatch import tensors_in

Copied = TypeVar("Copied")


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Give tensors that are made inside a shape, a type and a device, but no data.

    Mixing devices, reading a value (`.item()`, a mask as index) and using a tensor from outside are errors.
    """
    # Recurrent layers would ask the driver whether cuDNN is usable.
    with FakeTensorMode(), torch.backends.cudnn.flags(enabled=False):
        yield


def fake_copy(value: Copied, *, device: str = "cuda") -> Copied:
    """Copy a module or a dataclass of tensors to a fake device; call it inside `fake_tensors`.
    Tensors that a module does not register stay where they are, as with `Module.to`.
    """
    if isinstance(value, nn.Module):
        tensors: list[Tensor] = [*value.parameters(), *value.buffers()]
    else:
        tensors = tensors_in(vars(value))
    fakes: dict[int, Tensor] = {}
    for tensor in tensors:
        fake = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        is_parameter = isinstance(tensor, nn.Parameter)
        fakes[id(tensor)] = nn.Parameter(fake, requires_grad=tensor.requires_grad) if is_parameter else fake
    return copy.deepcopy(value, fakes)
