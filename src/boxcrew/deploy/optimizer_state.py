"""The state of an optimizer (momentum and the like) as named tensors and JSON values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from boxcrew.core.errors import UsageError


class OptimizerState(NamedTuple):
    """The state an optimizer keeps for its parameters, without its settings: a resumed run has its own."""

    tensors: Mapping[str, Tensor]  # by index of the parameter and name of the slot: 3.momentum_buffer
    plain: Mapping[str, Any]  # the kind of optimizer, and all slots that are not tensors


def read_optimizer_state(optimizer: Optimizer) -> OptimizerState:
    """Return the state of an optimizer; the tensors are its own, not copies."""
    state = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    plain: dict[str, dict[str, Any]] = {}
    for index, slots in state["state"].items():
        for slot, value in slots.items():
            if isinstance(value, Tensor):
                tensors[f"{index}.{slot}"] = value
            else:
                plain.setdefault(str(index), {})[slot] = value
    return OptimizerState(tensors, {"kind": type(optimizer).__name__, "slots": plain})


def check_optimizer_state(optimizer: Optimizer, plain: Mapping[str, Any]) -> None:
    """Raise a `UsageError` unless the slots are of the same kind of optimizer."""
    kind = type(optimizer).__name__
    if plain["kind"] != kind:
        raise UsageError(
            f"optim: the checkpoint's optimizer is {plain['kind']}, not {kind}: its state cannot be used",
            advice="resume with the optimizer the run began with, or start a new run with init=finetune",
        )


def load_optimizer_state(
    optimizer: Optimizer, slots: OptimizerState, copy_into: Callable[[Tensor, Tensor], object]
) -> None:
    """Replace the state of an optimizer. `copy_into(target, value)` copies into a tensor like a parameter."""
    check_optimizer_state(optimizer, slots.plain)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    optimizer.state.clear()
    for index, values in slots.plain["slots"].items():
        optimizer.state[parameters[int(index)]] |= values
    for name, value in slots.tensors.items():
        index, _, slot = name.partition(".")
        parameter = parameters[int(index)]
        loaded = value.clone()
        if value.shape == parameter.shape and slot != "step":
            # Laid out like its parameter, as it was before: files have no memory format, and steps on two
            # layouts are slower and may round differently. Tensor by tensor, and not by load_state_dict: if
            # parameters are sharded, no device has room for the full state.
            loaded = torch.empty_like(parameter, dtype=value.dtype, requires_grad=False)
            copy_into(loaded, value)
        optimizer.state[parameter][slot] = loaded
