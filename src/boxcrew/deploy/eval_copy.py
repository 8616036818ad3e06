"""Copies of modules to predict with."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def skeleton(module: Module) -> Module:
    """A copy whose parameters take no memory: only their shapes are there."""
    shapes = {
        id(parameter): nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=False)
        for parameter in module.parameters()
    }
    return copy.deepcopy(module, shapes)


def with_values(bare: Module, values: Mapping[str, Tensor]) -> Module:
    """A skeleton that has these tensors for its own, without a copy of them."""
    bare.load_state_dict(dict(values), assign=True)
    return bare
