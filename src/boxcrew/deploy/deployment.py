"""A running plan, as one process sees it: where tensors are, how gradients are computed, who updates."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from boxcrew.core.errors import BoxcrewError, DataError, first_line
from boxcrew.core.registry import Registry
from boxcrew.core.torch_tools.foreach import copy_all, divide_all, multiply_all, norms_of
from boxcrew.core.torch_tools.recompute import recomputing
from boxcrew.core.torch_tools.tracked_weights import track_weights, tracked_buffers
from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.devices import Devices
from boxcrew.deploy.execution import PlanProcess
from boxcrew.deploy.memory import is_out_of_memory
from boxcrew.deploy.optimizer_state import OptimizerState, load_optimizer_state, read_optimizer_state
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.plan.plan import Plan

FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}

Module = TypeVar("Module", bound=nn.Module)


class StepSums(NamedTuple):
    """The sums over a step besides gradients."""

    losses: Losses
    num_samples: int
    used: Sequence[float] = ()  # 1 for each parameter or layer that was used, else 0

    def as_numbers(self, like: Tensor) -> Tensor:
        """Return all numbers in one row, of the type and on the device of `like`."""
        weight, terms = self.losses.weight, self.losses.terms.values()
        sums = torch.stack([weight.new_tensor(self.num_samples), weight, *terms]).to(like)
        return torch.cat((sums, like.new_tensor(self.used)))


class Deployment(PlanProcess):
    """A plan in one process, as a training loop uses it; one subclass for each strategy.

    If parameters are sharded among the replicas, none has the full state (`has_full_state`), and what the
    chief wants to see of it all must gather together: between steps the chief broadcasts commands, which
    the others serve until they may go on.
    """

    computes_in_turn = False  # whether one clone of this process computes after the other

    def __init__(self, plan: Plan, devices: Devices, group: ReplicaGroup) -> None:
        super().__init__(plan, devices, group)
        self.format = FORMATS[plan.memory_format]
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=plan.precision == "fp16")
        self._saved_buffers: list[Tensor] = []  # of the task, as they were before the step
        self._tracked_before: list[Tensor] = []  # those of them that are tracked before the step is computed

    @abstractmethod
    def forward_backward(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        """Return sums of the losses over all samples; the parameters then have sums of the gradients."""

    def setup_module(self, module: nn.Module) -> nn.Module:
        """Return the module on its devices, in the plan's memory format and with the chief's values."""
        return module.to(self.device).to(memory_format=self.format)

    @torch.no_grad()
    def broadcast(self, module: nn.Module) -> None:
        """Copy the chief's parameters and buffers into those of all replicas."""
        self.group.broadcast([*module.parameters(), *module.buffers()])

    def eval_copy(self, module: Module, values: Mapping[str, Tensor] | None = None) -> Module:
        """Return a module to predict with, on the first clone's device: the module itself, a copy of it, or a
        copy with the full `values` as its own (which must be given unless `has_full_state`).
        """
        return module if values is None else copy_with_values(module, values)

    @property
    def first_device(self) -> torch.device:
        """The device of this process's first clone."""
        return self.devices.find(self.own_clones[0].device)

    def to_device(self, inputs: Tensor) -> Tensor:
        """Return a batch's inputs on the device of an `eval_copy`, in the plan's memory format."""
        return inputs.to(self.first_device, memory_format=self.format_of(inputs), non_blocking=True)

    def format_of(self, inputs: Tensor) -> torch.memory_format:
        """Return the plan's memory format for images; other inputs keep theirs."""
        return self.format if inputs.ndim == 4 else torch.preserve_format

    def to_local(self, tensor: Tensor) -> Tensor:
        """Return this process's shard of a parameter, optimizer state, or any tensor laid out like them."""
        return tensor

    def gather_parameter(self, parameter: Tensor) -> Tensor:
        """Return the full parameter on every replica. Collective if parameters are sharded."""
        return parameter

    def gather_full_state(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return such tensors in full on the chief. Collective: all replicas must call it with theirs."""
        return tensors

    def load_into(self, target: Tensor, value: Tensor) -> None:
        """Copy a full value into such a tensor."""
        target.copy_(value)

    def slots(self, optimizer: Optimizer) -> OptimizerState:
        """Return the optimizer's state, laid out like the parameters."""
        return read_optimizer_state(optimizer)

    def load_optimizer_state(self, optimizer: Optimizer, slots: OptimizerState) -> None:
        """Replace the optimizer's state by full tensors. Collective."""
        load_optimizer_state(optimizer, slots, self.load_into)

    def gradients(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        """Run a step's forward and backward. Every parameter's gradient is then that of the sum of the
        losses over all samples, divided by their weight, however the samples were split.

        If memory runs out the step is done again in twice as many micro-batches, and so are those after it.
        That changes nothing but the statistics of BatchNorms in training mode, which see one at a time.
        """
        self._tracked_before = [buffer.clone() for buffer in tracked_buffers(task)]
        # Before buffers are saved: a replica without a sample restores them, and must keep what this updates.
        track_weights(task, self.gather_parameter)
        self._save_buffers(task)
        if self._scaler.is_enabled():
            # This creates its scale beside the parameters: the first to need it would else create it on an
            # accelerator, or in several threads at once.
            self._scaler.scale(torch.zeros((), device=self.device))
        while True:
            try:
                total = self.forward_backward(task, batch, phase)
                break
            except (RuntimeError, ValueError, MemoryError) as error:
                self._split_further(len(batch), error)
            self.discard(task)  # here, where the error no longer holds the tensors of the failed attempt
            for name in self.plan.devices:
                self.devices.release(name)
        self.divide(task, total)
        return total

    def divide(self, task: nn.Module, total: Losses) -> None:
        """Divide the gradients by the weight of the whole step, which is known only after backward."""
        divide_all([self.to_local(p.grad) for p in task.parameters() if p.grad is not None], total.divisor)

    def compute(
        self, task: nn.Module, samples: Batch, phase: str, device: torch.device, *, counts: bool = True
    ) -> Losses:
        """Run forward and backward of some samples on one device, adding to the gradients that are there.
        Samples that do not count are computed with a weight of zero.
        """
        losses = self.forward(task, samples, phase, device)
        if not counts:
            losses = losses.zeroed()
        self.backward(losses.total())
        return losses.detach()

    def forward(self, task: nn.Module, samples: Batch, phase: str, device: torch.device) -> Losses:
        moved = samples.to(device, memory_format=self.format_of(samples.inputs))
        half = HALF.get(self.plan.precision)
        autocast = nullcontext() if half is None else torch.autocast(device.type, dtype=half)
        draws_alone = self.computes_in_turn or len(self.own_clones) == 1
        recompute = recomputing(task, draws_alone=draws_alone) if self.plan.recompute else nullcontext()
        with autocast, recompute:
            losses: Losses = task(moved, phase)
        return losses

    def backward(self, loss: Tensor) -> None:
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def all_reduce_losses(self, own: Sequence[tuple[int, StepSums]], *, num_rows: int = 1) -> StepSums:
        """Add up the sums of all replicas: all that they need besides gradients, in one message.

        Each of this replica's `own` sums belongs to a row. Rows are added in their order, so that the result
        does not depend on who has computed which.
        """
        exact = torch.float32 if self.device.type == "mps" else torch.float64  # MPS has no float64
        first = own[0][1]
        rows = torch.zeros(num_rows, 2 + len(first.losses.terms) + len(first.used), dtype=exact)
        rows = rows.to(self.device)
        for row, sums in own:
            rows[row] += sums.as_numbers(rows)
        self.group.all_reduce(rows)
        numbers = rows[0]
        for row in range(1, num_rows):
            numbers = numbers + rows[row]
        with self.group.waiting():  # on an accelerator the sum is only there once it is read
            num_samples = int(numbers[0])
        if not num_samples:
            raise DataError(
                f"none of the {self.plan.batch} samples of a step could be read by any replica",
                advice="check that the data set is still in its place",
            )
        num_sums = 2 + len(first.losses.terms)
        weight, *values = numbers[1:num_sums].to(first.losses.weight.dtype)
        total = Losses(terms=dict(zip(first.losses.terms, values, strict=True)), weight=weight)
        return StepSums(losses=total, num_samples=num_samples, used=numbers[num_sums:].tolist())

    def _split_further(self, num_samples: int, error: RuntimeError | ValueError | MemoryError) -> None:
        """Double the micro-batches of a step if that may help; else raise the error. It cannot with several
        replicas: all would have to, and may be waiting for our gradients already. Nor if clones compute in
        turn, whose samples it would change.
        """
        parts = self.execution.num_micro_batches
        out_of_memory = is_out_of_memory(error)
        reason = first_line(error)
        in_turn = self.computes_in_turn and len(self.plan.clones) > 1
        if out_of_memory and (self.group.num_replicas > 1 or in_turn):
            raise BoxcrewError(
                f"replica {self.group.rank}: too little memory for a step in {parts} micro-batches: {reason}",
                advice=f"deploy.accumulation={min(2 * parts, self.plan.batch)} needs less memory",
            ) from error
        # In training mode BatchNorms of 1 x 1 maps refuse to work on one sample.
        lonely = "more than 1 value per channel" in str(error)
        if lonely and len(self.plan.clones) > 1:
            raise BoxcrewError(
                "a clone has only one sample, and a BatchNorm over 1 x 1 maps needs two",
                advice="a larger batch=, other deploy.shares=, or deploy.batch_norm=synced",
            ) from error
        too_small = self.execution.min_micro_batches > 1 and lonely
        if too_small or (out_of_memory and parts >= num_samples):
            names, cap = " and ".join(self.plan.devices), self.plan.memory_fraction
            used = f", of which {cap:.0%} may be used (deploy.memory_fraction)," if cap else ""
            raise BoxcrewError(
                f"not enough memory on {names}{used} for {num_samples} samples "
                f"even in {parts} micro-batches: {reason} (plan: {self.execution.plan.explain()[0]})",
                advice="make the samples (size=, length=) or the network smaller, or use another device="
                + (" or more of the memory" if cap else ""),
            ) from error
        if not out_of_memory:
            raise error
        self.execution = self.execution.with_micro_batches(min(2 * parts, num_samples))

    def update(self, optimizer: Optimizer, *, max_norm: float | None) -> float:
        """Clip the gradient to `max_norm` if given, step, and clear it; return its norm before clipping. If
        that is not finite no step is made: the parameters stay as they were.
        """
        self._scaler.unscale_(optimizer)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [self.to_local(p.grad) for p in parameters if p.grad is not None]
        total = self.norm(gradients)
        norm = float(total)
        if max_norm is not None:
            # As torch.nn.utils.clip_grads_with_norm_ does, which cannot work on shards.
            multiply_all(gradients, (max_norm / (total + 1e-6)).clamp(max=1))
        if math.isfinite(norm):
            self._scaler.step(optimizer)
        self._scaler.update()  # lowers the scale if the gradient has overflowed
        optimizer.zero_grad(set_to_none=True)
        return norm

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the norm of the full gradient, of which this process has these tensors."""
        # As nn.utils.get_total_norm does, which first sorts tensors by their devices and types.
        norms = norms_of(list(gradients)) if gradients else (torch.zeros((), device=self.device),)
        total: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        return total

    def discard(self, task: nn.Module) -> None:
        """Undo `gradients` if no step is made: clear them and restore the buffers (BatchNorm statistics)."""
        task.zero_grad(set_to_none=True)
        self.restore_buffers(task)

    def abandon(self, task: nn.Module) -> None:
        """Undo `gradients`, also if it has failed at any point: the step can be done again, with the same
        result. Collectives that others have left are not waited for.
        """
        self.discard(task)
        copy_all(tracked_buffers(task), self._tracked_before)

    def regroup(self, group: ReplicaGroup) -> None:
        """Go on in another group, between steps or after `abandon`: its replicas divide the clones anew. Only
        strategies whose replicas have the full state can.
        """
        self.group = group
        self.execution = self.execution.with_replicas(group.num_replicas)

    def _save_buffers(self, task: nn.Module) -> None:
        """Copy the buffers (statistics and counters of BatchNorms), if possible over the earlier copies."""
        buffers = list(task.buffers())
        lists = (buffers, self._saved_buffers)
        kinds, saved = ([(b.shape, b.dtype, b.device) for b in each] for each in lists)
        if kinds != saved:
            self._saved_buffers = [buffer.clone() for buffer in buffers]
        else:
            copy_all(self._saved_buffers, buffers)

    def restore_buffers(self, task: nn.Module) -> None:
        copy_all(list(task.buffers()), self._saved_buffers)

    def state(self) -> dict[str, object]:
        """Return JSON values for a checkpoint: the same for all strategies, so that another can go on."""
        return {"scaler": self._scaler.state_dict(), "parts": self.execution.min_micro_batches}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.execution = self.execution.with_micro_batches(state.get("parts", 1))
        if state["scaler"]:
            self._scaler.load_state_dict(state["scaler"])


def meta_copy(module: Module) -> Module:
    """Return a copy whose parameters are on the meta device: they have shapes, but take no memory."""
    metas = ((p, torch.empty_like(p, device="meta")) for p in module.parameters())
    shapes = {id(p): nn.Parameter(meta, requires_grad=False) for p, meta in metas}
    return copy.deepcopy(module, shapes)


def copy_with_values(module: Module, values: Mapping[str, Tensor]) -> Module:
    """Return a copy that has these tensors as its own: they are not copied."""
    copied = meta_copy(module)
    copied.load_state_dict(dict(values), assign=True)
    return copied


STRATEGIES: Registry[type[Deployment]] = Registry("strategy", "boxcrew.deploy.strategies")


def deploy(plan: Plan, devices: Devices | None = None, group: ReplicaGroup | None = None) -> Deployment:
    """Return the deployment of a plan in one replica of the `group`, which by default has no other."""
    return STRATEGIES.get(plan.strategy)(plan, devices or Devices(), group or ReplicaGroup())
