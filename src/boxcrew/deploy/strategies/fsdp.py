"""Parameters, gradients and optimizer state sharded among the replicas, for models that do not fit on one: a
layer's parameters are gathered on all while it computes, and freed again.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import reduce
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import (
    STRATEGIES,
    Deployment,
    Module,
    StepSums,
    copy_with_values,
    meta_copy,
)
from boxcrew.deploy.devices import Devices
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.strategies._micro_batches import MicroBatch, micro_batches_of
from boxcrew.deploy.synced_norms import SyncedNorms
from boxcrew.plan.plan import Plan

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

UNIT_BYTES = 1 << 20  # a layer with as many is gathered by itself; all smaller ones stay for the whole step


@STRATEGIES.register("fsdp")
class Fsdp(Deployment):
    def __init__(self, plan: Plan, devices: Devices, group: ReplicaGroup) -> None:
        super().__init__(plan, devices, group)
        self.device = self.first_device
        self.has_full_state = group.num_replicas == 1
        self._synced = plan.batch_norm == "synced" and not self.has_full_state
        self._meta_copies: dict[nn.Module, nn.Module] = {}  # made before the parameters were sharded
        self._layers: dict[nn.Module, list[nn.Module]] = {}  # those of a module that have parameters
        self._called: set[nn.Module] = set()  # layers that this step has used so far

    def setup_module(self, module: nn.Module) -> nn.Module:
        if self.has_full_state:
            return super().setup_module(module)
        # Only contiguous parameters can be sharded; inputs alone are in the plan's memory format. From main
        # memory each shard goes to the device by itself, which may have no room for all.
        placed = module.cpu().to(memory_format=torch.contiguous_format)
        self.broadcast(placed)
        self._meta_copies[placed] = meta_copy(placed)
        self._shard(placed)
        layers = [layer for layer in placed.modules() if any(True for _ in layer.parameters(recurse=False))]
        self._layers[placed] = layers
        for layer in layers:
            layer.register_forward_pre_hook(lambda layer, _: self._called.add(layer))
        return placed

    def eval_copy(self, module: Module, values: Mapping[str, Tensor] | None = None) -> Module:
        if self.has_full_state:
            return super().eval_copy(module, values)
        assert values is not None, "no process has the full parameters"
        full: Module = copy_with_values(self._meta_copies[module], values)  # type: ignore[assignment]
        return full.to(self.device)

    def to_local(self, tensor: Tensor) -> Tensor:
        return tensor if not _is_sharded(tensor) else tensor.to_local()  # type: ignore[attr-defined]

    def gather_parameter(self, parameter: Tensor) -> Tensor:
        if not _is_sharded(parameter):
            return parameter
        full: Tensor = parameter.full_tensor()  # type: ignore[attr-defined]
        return full

    def gather_full_state(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the tensors in main memory: the device may have no room for all."""
        if self.has_full_state:
            return tensors
        full = ((name, self.gather_parameter(tensor)) for name, tensor in tensors.items())
        return {name: tensor.cpu() for name, tensor in full if self.is_chief}

    def load_into(self, target: Tensor, value: Tensor) -> None:
        if not _is_sharded(target):
            target.copy_(value)
            return
        from torch.distributed.tensor import distribute_tensor

        sharded: DTensor = target  # type: ignore[assignment]
        # Without a message: every replica has the full value, and copies its own shard of it.
        full, mesh = value.to(sharded.device), sharded.device_mesh
        shards = distribute_tensor(full, mesh, sharded.placements, src_data_rank=None)
        sharded.to_local().copy_(shards.to_local())

    def forward_backward(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        """Sum up in any order: sharded gradients are added up while they are sent, by torch."""
        self._called.clear()
        sizes = [sum(counts) for counts in self.execution.plan.replica_split(self.group.rank, len(batch))]
        micro_batches = micro_batches_of(batch, sizes, every=not self.has_full_state)
        losses = [self._compute_one(task, micro_batch, phase) for micro_batch in micro_batches]
        if batch.is_blank and not self._synced:
            self.restore_buffers(task)
        layers = self._layers.get(task, [])
        called = [float(layer in self._called) for layer in layers]
        num = sum(len(micro_batch.batch) for micro_batch in micro_batches if micro_batch.counts)
        own = StepSums(losses=reduce(operator.add, losses), num_samples=num, used=called)
        total = self.all_reduce_losses([(0, own)])
        for layer, count in zip(layers, total.used, strict=True):
            if not count:  # its gradients are zeros, but with weight decay even they would move it
                for parameter in layer.parameters(recurse=False):
                    parameter.grad = None
        return total.losses

    def _compute_one(self, task: nn.Module, micro_batch: MicroBatch, phase: str) -> Losses:
        counts = micro_batch.counts
        with SyncedNorms(self._all_reduce, counts=counts) if self._synced else nullcontext():
            return self.compute(task, micro_batch.batch, phase, self.device, counts=counts)

    def _all_reduce(self, value: Tensor) -> Tensor:
        total = value.clone()
        self.group.all_reduce(total)
        return total

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        own = super().norm(gradients)
        if self.has_full_state:
            return own
        square = own.double().square().to(self.device)
        self.group.all_reduce(square)
        return square.sqrt().to(own.dtype)

    def _shard(self, module: nn.Module) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard
        from torch.export import register_dataclass

        register_dataclass(Losses)
        mesh = init_device_mesh(self.device.type, (self.group.num_replicas,))
        for layer in module.modules():
            size = sum(parameter.nbytes for parameter in layer.parameters())
            if size >= UNIT_BYTES and not any(True for _ in layer.children()):
                fully_shard(layer, mesh=mesh)
        root = fully_shard(module, mesh=mesh)
        root.set_reduce_scatter_unused_params(reduce_scatter_unused_params=True)
        for unit in module.modules():
            if isinstance(unit, FSDPModule):  # sums, not means
                unit.set_gradient_divide_factor(1.0)
                unit.set_force_sum_reduction_for_comms(enable=True)


def _is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "to_local")
