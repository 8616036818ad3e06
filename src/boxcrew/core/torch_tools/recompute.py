"""Less memory for more time: forward keeps only what goes into the units of a network, and backward computes
what is inside them again.

What is learnt is the same to the bit. A unit's second run begins with the buffers (statistics of BatchNorms)
and the random numbers that its first began with, and leaves no trace in either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten
from torch.utils.checkpoint import checkpoint

from boxcrew.core.errors import BoxcrewError

# In weights, without biases and those of normalisations. Of large units less is kept, but all that is inside
# one is there at once in backward.
ROW_WEIGHTS = 2  # of a unit that is a part of a row of layers
BLOCK_WEIGHTS = 6  # of one that says by itself how its layers are connected, at most

CPU = torch.device("cpu")

Forward = Callable[..., Any]


@contextmanager
def recomputing(module: nn.Module, *, draws_alone: bool = True) -> Iterator[None]:
    """Inside, forwards of `module` keep little for backward, which may also come after it. Some of its parts
    have another `forward` for that time, and nothing else of them changes.

    Threads may do this at the same time, each with a module of its own. None of these `draws_alone` from the
    CPU's source of random numbers, and it is an error if one does.
    """
    with ExitStack() as undo:
        for part, forward in dict(_Search(module, draws_alone=draws_alone).forwards()).items():
            undo.callback(_put_back, part, vars(part).get("forward"))
            vars(part)["forward"] = forward
        yield


def _put_back(module: nn.Module, forward: Forward | None) -> None:
    """None: its class's."""
    del vars(module)["forward"]
    if forward is not None:
        vars(module)["forward"] = forward


class _Search:
    """For the units of a module."""

    def __init__(self, module: nn.Module, *, draws_alone: bool) -> None:
        self._module = module
        self._draws_alone = draws_alone
        self._weights: dict[nn.Module, int] = {}  # of every module, how many
        self._count(module)

    def _count(self, module: nn.Module) -> int:
        own = sum(value.ndim > 1 for value in module._parameters.values() if value is not None)
        below = sum(self._count(child) for child in module._modules.values() if child is not None)
        self._weights[module] = own + below
        return own + below

    def forwards(self) -> Iterator[tuple[nn.Module, Forward]]:
        """The modules that are to run otherwise, and how."""
        if _is_row(self._module):
            yield from self._of_row(self._module)
        else:  # even if small: a unit that is all there is saves nothing
            yield from self._below(self._module.children())

    def _below(self, modules: Iterable[nn.Module]) -> Iterator[tuple[nn.Module, Forward]]:
        for module in modules:
            if _is_row(module):
                yield from self._of_row(module)
            elif self._is_block(module):
                yield module, _Unit(module.forward, [module], draws_alone=self._draws_alone)
            else:
                yield from self._below(module.children())

    def _of_row(self, row: nn.Module) -> Iterator[tuple[nn.Module, Forward]]:
        pieces = list(self._pieces(row.children()))
        if any(isinstance(piece, _Unit) for piece in pieces):
            yield row, _Row(pieces)
        yield from self._below(piece for piece in pieces if isinstance(piece, nn.Module))

    def _is_block(self, module: nn.Module) -> bool:
        """Whether there is more to it than to one of torch's layers, but not too much."""
        has_forward = type(module).forward is not nn.Module.forward
        is_layer = not module._modules and type(module).__module__.startswith("torch.nn.")
        is_small = self._weights[module] <= BLOCK_WEIGHTS
        return has_forward and not is_layer and is_small and _can_be_unit([module])

    def _pieces(self, layers: Iterable[nn.Module]) -> Iterator[Forward]:
        """Of a row: units of consecutive layers; and those layers as they are that are large, or between."""
        run: list[nn.Module] = []
        for layer in layers:
            is_full = sum(self._weights[one] for one in run) >= ROW_WEIGHTS
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
            yield _Unit(_Row(run), run, draws_alone=self._draws_alone)
        else:
            yield from run


def _is_row(module: nn.Module) -> bool:
    return type(module).forward is nn.Sequential.forward and "forward" not in vars(module)


def _can_be_unit(run: Sequence[nn.Module]) -> bool:
    return any(True for _ in _parameters(run)) and not _changes_its_input(run[0])


def _keeps_its_result(layer: nn.Module) -> bool:
    """And nothing else: in the place of its input, and the next unit's input, which is kept anyway."""
    return isinstance(layer, (nn.ReLU, nn.Hardtanh, nn.LeakyReLU)) and layer.inplace


def _changes_its_input(layer: nn.Module) -> bool:
    """Which a unit would need once more."""
    first = next((part for part in _parts([layer]) if not part._modules), layer)
    return bool(getattr(first, "inplace", False))


def _parts(modules: Iterable[nn.Module]) -> Iterator[nn.Module]:
    """They and all below them; what stands in two places, twice."""
    for module in modules:
        yield module
        yield from _parts(child for child in module._modules.values() if child is not None)


def _parameters(modules: Iterable[nn.Module]) -> Iterator[nn.Parameter]:
    return (p for part in _parts(modules) for p in part._parameters.values() if p is not None)


class _Row:
    def __init__(self, pieces: Sequence[Forward]) -> None:
        self._pieces = pieces

    def __call__(self, input: Any) -> Any:  # named as torch's
        found = input
        for piece in self._pieces:
            found = piece(found)
        return found


class _Unit:
    """What is computed twice: `run`, in which these modules take part."""

    def __init__(self, run: Forward, modules: Sequence[nn.Module], *, draws_alone: bool) -> None:
        self._run = run
        self._modules = modules
        self._draws_alone = draws_alone

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, shape = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if not torch.is_grad_enabled() or not self._needs_backward(tensors):
            return self._run(*args, **kwargs)
        start = _Start(self._modules, {tensor.device for tensor in tensors})
        found = checkpoint(
            self._run_flat,
            shape,
            *leaves,  # each by itself, so that torch sees it if one is changed before it is needed again
            use_reentrant=False,
            preserve_rng_state=False,
            context_fn=lambda: (nullcontext(), start),
        )
        if CPU in start.drawn() and not self._draws_alone:
            raise BoxcrewError(
                "clones of one process draw random numbers (dropout) from one source, and none of them could "
                "draw its own again",
                advice="deploy.recompute=false, or a process for each clone (deploy.strategy=ddp)",
            )
        return found

    def _needs_backward(self, tensors: Sequence[Tensor]) -> bool:
        return any(tensor.requires_grad for tensor in tensors) or any(
            parameter.requires_grad for parameter in _parameters(self._modules)
        )

    def _run_flat(self, shape: TreeSpec, *leaves: Any) -> Any:
        args, kwargs = tree_unflatten(leaves, shape)
        return self._run(*args, **kwargs)


class _Start:
    """What a first run begins with; inside, a second begins with the same."""

    def __init__(self, modules: Sequence[nn.Module], devices: set[torch.device]) -> None:
        self._buffers = [
            (part._buffers, name, value.clone())
            for part in _parts(modules)
            for name, value in part._buffers.items()
            if value is not None
        ]
        self._draws = {device: _state(device) for device in devices | {CPU} if _has_source(device)}
        self._modes = _modes()
        self._undo = ExitStack()

    def drawn(self) -> list[torch.device]:
        """After the first run: where it drew random numbers. Only there has the second to draw them again."""
        self._draws = {
            device: state for device, state in self._draws.items() if not torch.equal(state, _state(device))
        }
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()


def _modes() -> list[TorchFunctionMode]:
    """What changes calls of torch's functions; backward comes by without it. torch brings its own back."""
    stack: list[TorchFunctionMode] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return [mode for mode in stack if not isinstance(mode, DeviceContext)]


def _has_source(device: torch.device) -> bool:
    """Of random numbers: tensors without data have none."""
    return device == CPU or hasattr(getattr(torch, device.type, None), "get_rng_state")


def _state(device: torch.device) -> Tensor:
    """How far its random numbers have come."""
    if device == CPU:
        return torch.get_rng_state()
    state: Tensor = torch.get_device_module(device).get_rng_state(device)
    return state


def _set_state(device: torch.device, state: Tensor) -> None:
    if device == CPU:
        torch.set_rng_state(state)
    else:
        torch.get_device_module(device).set_rng_state(state, device)
