"""Activation checkpointing: forward keeps only the inputs of the units of a network, and backward computes
their activations again. Less memory for more time.

What is learned is the same to the bit. A unit's second run begins with the buffers (statistics of BatchNorms)
and the state of random numbers that its first began with, and changes neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten
from torch.utils.checkpoint import checkpoint

from boxcrew.core.errors import BoxcrewError

# In weight tensors, without biases and those of normalizations. Larger units keep less in forward, but need
# more at once in backward.
ROW_WEIGHTS = 2  # of a unit of consecutive layers of an nn.Sequential
BLOCK_WEIGHTS = 6  # at most, of a unit that is a module with a forward of its own

CPU = torch.device("cpu")

Forward = Callable[..., Any]


@contextmanager
def recomputing(module: nn.Module, *, draws_alone: bool = True) -> Iterator[None]:
    """Let forwards of `module` inside keep little for backward, which may also come later. Some submodules
    have another `forward` for that time; nothing else of them changes.

    Threads may do this at the same time, each with a module of its own. Then none `draws_alone` from the
    CPU's random numbers, which all share, and it is an error if one draws any.
    """
    with ExitStack() as undo:
        for unit, forward in dict(_Search(module, draws_alone=draws_alone).forwards()).items():
            if "forward" in vars(unit):
                undo.callback(vars(unit).__setitem__, "forward", vars(unit)["forward"])
            else:  # it has that of its class
                undo.callback(vars(unit).pop, "forward")
            vars(unit)["forward"] = forward
        yield


class _Search:
    """The search for the units of a module."""

    def __init__(self, module: nn.Module, *, draws_alone: bool) -> None:
        self._module = module
        self._draws_alone = draws_alone
        self._weights: dict[nn.Module, int] = {}  # number of weight tensors in every module
        self._count(module)

    def _count(self, module: nn.Module) -> int:
        own = sum(value.ndim > 1 for value in module._parameters.values() if value is not None)
        below = sum(self._count(child) for child in module._modules.values() if child is not None)
        self._weights[module] = own + below
        return own + below

    def forwards(self) -> Iterator[tuple[nn.Module, Forward]]:
        """Yield the modules that get another `forward`, and that forward."""
        if _is_row(self._module):
            yield from self._of_row(self._module)
        else:  # even if small: a single unit would save nothing
            yield from self._below(self._module.children())

    def _below(self, modules: Iterable[nn.Module]) -> Iterator[tuple[nn.Module, Forward]]:
        for module in modules:
            if _is_row(module):
                yield from self._of_row(module)
            elif self._is_block(module):
                yield module, _Unit(module.forward, [module], self._draws_alone)
            else:
                yield from self._below(module.children())

    def _of_row(self, row: nn.Module) -> Iterator[tuple[nn.Module, Forward]]:
        stages = list(self._stages(row.children()))
        if any(isinstance(stage, _Unit) for stage in stages):
            yield row, _row(stages)
        yield from self._below(stage for stage in stages if isinstance(stage, nn.Module))

    def _is_block(self, module: nn.Module) -> bool:
        """Return whether a module is more than one of torch's layers, but small enough for a unit."""
        has_forward = type(module).forward is not nn.Module.forward
        is_layer = not module._modules and type(module).__module__.startswith("torch.nn.")
        is_small = self._weights[module] <= BLOCK_WEIGHTS
        return has_forward and not is_layer and is_small and _can_be_unit([module])

    def _stages(self, layers: Iterable[nn.Module]) -> Iterator[Forward]:
        """Yield units of consecutive layers, and layers by themselves that are large or between units."""
        run: list[nn.Module] = []
        for layer in layers:
            is_full = sum(self._weights[member] for member in run) >= ROW_WEIGHTS
            is_large = self._weights[layer] >= ROW_WEIGHTS
            is_between = (is_full or not run) and _keeps_its_result(layer)
            if is_large or is_between or (is_full and not _changes_its_input(layer)):
                yield from self._unit_of(run)
                run = []
            if is_large or is_between:
                yield layer
            else:
                run.append(layer)
        yield from self._unit_of(run)

    def _unit_of(self, run: list[nn.Module]) -> Iterator[Forward]:
        if len(run) > 1 and _can_be_unit(run):
            yield _Unit(_row(run), run, self._draws_alone)
        else:
            yield from run


def _is_row(module: nn.Module) -> bool:
    return type(module).forward is nn.Sequential.forward and "forward" not in vars(module)


def _can_be_unit(run: Sequence[nn.Module]) -> bool:
    return any(True for _ in _parameters(run)) and not _changes_its_input(run[0])


def _keeps_its_result(layer: nn.Module) -> bool:
    """Return whether a layer keeps only its result for backward, which is kept as the next input anyway."""
    return isinstance(layer, (nn.ReLU, nn.Hardtanh, nn.LeakyReLU)) and layer.inplace


def _changes_its_input(layer: nn.Module) -> bool:
    """Return whether a layer overwrites its input, which a unit would need again."""
    first = next((module for module in _all_modules([layer]) if not module._modules), layer)
    return bool(getattr(first, "inplace", False))


def _all_modules(modules: Iterable[nn.Module]) -> Iterator[nn.Module]:
    """Yield the modules and all below them, in the order of their layers; a module used twice comes twice."""
    for module in modules:
        yield module
        yield from _all_modules(child for child in module._modules.values() if child is not None)


def _parameters(modules: Iterable[nn.Module]) -> Iterator[nn.Parameter]:
    return (p for module in _all_modules(modules) for p in module._parameters.values() if p is not None)


def _row(stages: Sequence[Forward]) -> Forward:
    def forward(input: Any) -> Any:  # named as torch's
        return reduce(lambda output, stage: stage(output), stages, input)

    return forward


@dataclass(frozen=True, eq=False)
class _Unit:
    """A part of a network that backward computes again instead of keeping its results: `run`, which uses
    `modules`.
    """

    run: Forward
    modules: Sequence[nn.Module]
    draws_alone: bool

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, shape = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        learns = any(value.requires_grad for value in (*tensors, *_parameters(self.modules)))
        if not torch.is_grad_enabled() or not learns:
            return self.run(*args, **kwargs)
        start = _Start(self.modules, {tensor.device for tensor in tensors})
        result = checkpoint(
            self._run_flat,
            shape,
            *leaves,  # one by one, so that torch notices if one is changed before it is needed again
            use_reentrant=False,
            preserve_rng_state=False,
            context_fn=lambda: (nullcontext(), start),
        )
        if CPU in start.drawn() and not self.draws_alone:
            raise BoxcrewError(
                "recomputing activations with dropout needs one clone per process: clones of one process "
                "share their random numbers",
                advice="deploy.recompute=false, or a process for each clone (deploy.strategy=ddp)",
            )
        return result

    def _run_flat(self, shape: TreeSpec, *leaves: Any) -> Any:
        args, kwargs = tree_unflatten(leaves, shape)
        return self.run(*args, **kwargs)


class _Start:
    """The state at the start of a unit's first run, and a context that restores it for the second."""

    def __init__(self, modules: Sequence[nn.Module], devices: set[torch.device]) -> None:
        self._buffers = [
            (module._buffers, name, value.clone())
            for module in _all_modules(modules)
            for name, value in module._buffers.items()
            if value is not None
        ]
        self._draws = {device: _state(device) for device in devices | {CPU} if _has_generator(device)}
        self._modes = _modes()
        self._undo = ExitStack()

    def drawn(self) -> list[torch.device]:
        """Return the devices on which the first run drew random numbers. Only those are restored."""
        before = self._draws.items()
        self._draws = {device: old for device, old in before if not torch.equal(old, _state(device))}
        return list(self._draws)

    def __enter__(self) -> None:
        with ExitStack() as undo:
            for buffers, name, value in self._buffers:
                undo.callback(buffers.__setitem__, name, buffers[name])
                buffers[name] = value.clone()
            for device, state in self._draws.items():
                undo.callback(_set_state, device, _state(device))
                _set_state(device, state)
            active = _modes()
            for mode in self._modes:
                if mode not in active:
                    undo.enter_context(mode)
            self._undo = undo.pop_all()

    def __exit__(self, *_: object) -> None:
        self._undo.close()


def _modes() -> list[TorchFunctionMode]:
    """Return the active function modes, which backward runs without. torch restores its own."""
    stack: list[TorchFunctionMode] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return [mode for mode in stack if not isinstance(mode, DeviceContext)]


def _has_generator(device: torch.device) -> bool:
    """Return whether a device has random numbers: the meta device has none."""
    return device == CPU or hasattr(getattr(torch, device.type, None), "get_rng_state")


def _state(device: torch.device) -> Tensor:
    state = torch.get_rng_state() if device == CPU else torch.get_device_module(device).get_rng_state(device)
    assert isinstance(state, Tensor)
    return state


def _set_state(device: torch.device, state: Tensor) -> None:
    if device == CPU:
        torch.set_rng_state(state)
    else:
        torch.get_device_module(device).set_rng_state(state, device)
