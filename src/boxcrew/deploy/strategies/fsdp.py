"""Parameters, gradients and optimizer divided among the replicas, for models that do not fit: a layer's
parameters are brought together on all while it computes, and parted again.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from boxcrew.core.types import Losses
from boxcrew.deploy.deployment import STRATEGIES
from boxcrew.deploy.devices import Devices
from boxcrew.deploy.eval_copy import Module, skeleton, with_values
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.strategies._one_clone import OneClone, Piece, num_samples
from boxcrew.plan.plan import Plan

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

UNIT_BYTES = (
    1 << 20
)  # a layer with as many comes and goes by itself; all smaller ones stay for the whole step


@STRATEGIES.register("fsdp")
class Fsdp(OneClone):
    def __init__(self, plan: Plan, devices: Devices, group: ReplicaGroup) -> None:
        super().__init__(plan, devices, group)
        self.has_full_state = group.size == 1
        self._bare: dict[nn.Module, nn.Module] = {}  # skeletons, from before the parameters were divided
        self._layers: dict[nn.Module, list[nn.Module]] = {}  # those of a module that have parameters
        self._called: set[nn.Module] = set()  # of them, those that this step has used so far

    @property
    def needs_every_part(self) -> bool:
        return not self.has_full_state

    def place(self, module: nn.Module) -> nn.Module:
        if self.has_full_state:
            return super().place(module)
        # Only contiguous parameters can be divided; inputs alone are in the plan's memory format. From main
        # memory each part goes to the device by itself, which may have no room for all.
        placed = module.cpu().to(memory_format=torch.contiguous_format)
        self.broadcast(placed)
        self._bare[placed] = skeleton(placed)
        self._divide(placed)
        self._layers[placed] = [one for one in placed.modules() if any(True for _ in _own_parameters(one))]
        for layer in self._layers[placed]:
            layer.register_forward_pre_hook(self._note)
        return placed

    def eval_copy(self, module: Module, values: Mapping[str, Tensor] | None = None) -> Module:
        if self.has_full_state:
            return super().eval_copy(module, values)
        assert values is not None, "no process has all of it"
        bare = self._bare[module]
        assert isinstance(bare, nn.Module)
        lent: Module = with_values(skeleton(bare), values).to(self.device)  # type: ignore[assignment]
        return lent

    def local(self, tensor: Tensor) -> Tensor:
        return tensor if not _is_divided(tensor) else tensor.to_local()  # type: ignore[attr-defined]

    def gathered(self, parameter: Tensor) -> Tensor:
        if not _is_divided(parameter):
            return parameter
        whole: Tensor = parameter.full_tensor()  # type: ignore[attr-defined]
        return whole

    def gather_full_state(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """In main memory: the device may have no room for all."""
        if self.has_full_state:
            return tensors
        found = {}
        for name, tensor in tensors.items():
            whole = tensor.full_tensor() if _is_divided(tensor) else tensor  # type: ignore[attr-defined]
            if self.is_chief:
                found[name] = whole.cpu()
        return found

    def load_into(self, own: Tensor, value: Tensor) -> None:
        if not _is_divided(own):
            own.copy_(value)
            return
        from torch.distributed.tensor import distribute_tensor

        divided: DTensor = own  # type: ignore[assignment]
        # Without a message: every replica has the whole value, and takes its own part of it.
        parts = distribute_tensor(
            value.to(divided.device), divided.device_mesh, divided.placements, src_data_rank=None
        )
        divided.to_local().copy_(parts.to_local())

    def compute_all(self, task: nn.Module, pieces: Sequence[Piece], phase: str) -> Losses:
        self._called.clear()
        own = reduce(operator.add, (self.compute_piece(task, piece, phase) for piece in pieces))
        layers = self._layers.get(task, [])
        total, used = self.add_sums(
            own, num_samples(pieces), [float(layer in self._called) for layer in layers]
        )
        for layer, count in zip(layers, used, strict=True):
            if not count:  # zeros came, but with weight decay even they would move it
                for parameter in _own_parameters(layer):
                    parameter.grad = None
        return total

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        own = super().norm(gradients)
        if self.has_full_state:
            return own
        square = own.double().square().to(self.device)
        self.group.all_reduce(square)
        return square.sqrt().to(own.dtype)

    def _divide(self, module: nn.Module) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard
        from torch.export import register_dataclass

        register_dataclass(Losses)
        mesh = init_device_mesh(self.device.type, (self.group.size,))
        for layer in module.modules():
            size = sum(p.numel() * p.element_size() for p in layer.parameters())
            if size >= UNIT_BYTES and not any(True for _ in layer.children()):
                fully_shard(layer, mesh=mesh)
        root = fully_shard(module, mesh=mesh)
        root.set_reduce_scatter_unused_params(reduce_scatter_unused_params=True)
        for unit in module.modules():
            if isinstance(unit, FSDPModule):  # sums, not means
                unit.set_gradient_divide_factor(1.0)
                unit.set_force_sum_reduction_for_comms(enable=True)

    def _note(self, layer: nn.Module, _: object) -> None:
        self._called.add(layer)


def _own_parameters(layer: nn.Module) -> Iterator[nn.Parameter]:
    return layer.parameters(recurse=False)


def _is_divided(tensor: Tensor) -> bool:
    return hasattr(tensor, "to_local")
