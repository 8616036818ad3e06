"""What strategies have in common whose parameters live in the process that steps."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from boxcrew.core.errors import BoxcrewError, DataError
from boxcrew.core.torch_tools.recompute import recomputing
from boxcrew.core.torch_tools.tracked_weights import track_weights
from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import Deployment
from boxcrew.deploy.devices import Devices
from boxcrew.deploy.eval_copy import Module, skeleton, with_values
from boxcrew.deploy.memory import is_out_of_memory
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.strategies._buffers import KeptBuffers
from boxcrew.plan.plan import Plan

PICTURES = 4  # dimensions
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Local(Deployment):
    def __init__(self, plan: Plan, devices: Devices, group: ReplicaGroup) -> None:
        super().__init__(plan, devices, group)
        self.format = FORMATS[plan.memory_format]
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=plan.precision == "fp16")
        self._buffers = KeptBuffers()
        self._least_parts = 1  # of a step, as far as memory has shown

    @abstractmethod
    def add_up(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        """Forward and backward of all parts: sums of the losses are given back, sums of their gradients are
        in the task's parameters.
        """

    def place(self, module: nn.Module) -> nn.Module:
        return module.to(self.device).to(memory_format=self.format)

    @torch.no_grad()
    def broadcast(self, module: nn.Module) -> None:
        """Makes it what the chief's is, on all replicas."""
        self.group.broadcast([*module.parameters(), *module.buffers()])

    def eval_copy(self, module: Module, values: Mapping[str, Tensor] | None = None) -> Module:
        return module if values is None else with_values(skeleton(module), values)

    def move(self, inputs: Tensor) -> Tensor:
        return inputs.to(self.device, memory_format=self.format_of(inputs), non_blocking=True)

    def format_of(self, inputs: Tensor) -> torch.memory_format:
        """Only pictures have channels that can come last."""
        return self.format if inputs.ndim == PICTURES else torch.preserve_format

    def gathered(self, parameter: Tensor) -> Tensor:
        """All of it, for every replica; where it is divided, all must come by."""
        return parameter

    def gradients(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        # Before buffers are kept: a replica without a sample puts them back, and is to know what all know.
        track_weights(task, self.gathered)
        self._buffers.keep(task)
        if self._scaler.is_enabled():
            # Its scale is made here and beside the parameters: the first to need it would else make it, on an
            # accelerator, or in several threads at once.
            self._scaler.scale(torch.zeros((), device=self.device))
        while True:
            try:
                total = self.add_up(task, batch, phase)
                break
            except (RuntimeError, ValueError, MemoryError) as error:
                self.take_smaller_parts(len(batch), error)
            self.discard(task)  # here, where the error no longer holds on to the tensors of the failed try
            for name in self.plan.devices:
                self.devices.release(name)
        self.divide(task, total)
        return total

    def divide(self, task: nn.Module, total: Losses) -> None:
        """The weight of the whole step is known only now; gradients are linear, so they are divided."""
        gradients = [self.local(p.grad) for p in task.parameters() if p.grad is not None]
        torch._foreach_div_(gradients, total.divisor)

    def compute(
        self, task: nn.Module, part: Batch, phase: str, device: torch.device, *, counts: bool = True
    ) -> Losses:
        """Forward and backward of one part on one device; gradients are added to those that are there. What
        does not count is computed, but weighs nothing.
        """
        losses = self.forward(task, part, phase, device)
        if not counts:
            losses = losses.nothing()
        self.backward(losses.total())
        return losses.detach()

    def forward(self, task: nn.Module, part: Batch, phase: str, device: torch.device) -> Losses:
        moved = part.to(device, memory_format=self.format_of(part.inputs))
        with self._autocast(device), self._recomputing(task):
            losses: Losses = task(moved, phase)
        return losses

    def backward(self, loss: Tensor) -> None:
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def add_sums(
        self, own: Losses, num_samples: int, used: Sequence[float] = ()
    ) -> tuple[Losses, list[float]]:
        """Losses and `used` (of parameters or layers, whether they were) added up over all replicas: all that
        has to be besides the gradients, in one message.
        """
        exact = torch.float32 if self.device.type == "mps" else torch.float64  # which that has not
        sums = torch.stack([own.weight.new_tensor(num_samples), own.weight, *own.terms.values()]).to(exact)
        numbers = torch.cat((sums, torch.tensor(used, dtype=exact, device=self.device)))
        self.group.all_reduce(numbers)
        with self.group.waiting():  # on an accelerator the sum is only there when it is looked at
            num_samples = int(numbers[0])
        if not num_samples:
            raise DataError(
                f"none of the {self.plan.batch} samples of a step could be read by any replica",
                advice="check that the data set is still in its place",
            )
        weight, *values = numbers[1 : len(sums)].to(own.weight.dtype)
        total = Losses(terms=dict(zip(own.terms, values, strict=True)), weight=weight)
        return total, numbers[len(sums) :].tolist()

    def take_smaller_parts(self, num_samples: int, error: RuntimeError | ValueError | MemoryError) -> None:
        """Where that may help; else the error is raised. Not with other replicas, who would have to take them
        too, and may be waiting for our gradients already.
        """
        parts = self.plan.accumulation
        out_of_memory = is_out_of_memory(error)
        if out_of_memory and self.group.size > 1:
            raise BoxcrewError(
                f"replica {self.group.rank} has not enough memory for a step in {parts} parts: "
                f"{str(error).partition(chr(10))[0]}",
                advice=f"deploy.accumulation={min(2 * parts, self.plan.batch)}: the same in less memory",
            ) from error
        # In training mode BatchNorms of 1 x 1 maps refuse to work on one sample.
        lonely = "more than 1 value per channel" in str(error)
        if lonely and len(self.plan.clones) > 1:
            raise BoxcrewError(
                "a clone has one sample only, and a BatchNorm of single cells cannot work on that",
                advice="a larger batch=, other deploy.shares=, or deploy.batch_norm=synced",
            ) from error
        too_small = self._least_parts > 1 and lonely
        if too_small or (out_of_memory and parts >= num_samples):
            names, cap = " and ".join(self.plan.devices), self.plan.memory_fraction
            used = f", of which {cap:.0%} may be used (deploy.memory_fraction)," if cap else ""
            raise BoxcrewError(
                f"not enough memory on {names}{used} for {num_samples} samples even in {parts} parts: "
                f"{str(error).partition(chr(10))[0]} (plan: {self.plan.explain()[0]})",
                advice="make the samples (size=, length=) or the network smaller, or use another device="
                + (" or more of the memory" if cap else ""),
            ) from error
        if not out_of_memory:
            raise error
        self._need_parts(min(2 * parts, num_samples))

    def _need_parts(self, num: int) -> None:
        self._least_parts = max(num, self._least_parts)
        parts = max(num, self.plan.accumulation)
        if parts > self.plan.accumulation:  # may be more than the shares of several replicas allow
            self.plan = Plan.of(self.plan.tree() | {"accumulation": parts})

    def update(self, optimizer: Optimizer, *, max_norm: float | None) -> float:
        self._scaler.unscale_(optimizer)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [self.local(p.grad) for p in parameters if p.grad is not None]
        total = self.norm(gradients)
        norm = float(total)
        if max_norm is not None:
            # In the way of torch.nn.utils.clip_grads_with_norm_, which does not take parts of tensors.
            torch._foreach_mul_(gradients, (max_norm / (total + 1e-6)).clamp(max=1))
        if math.isfinite(norm):
            self._scaler.step(optimizer)
        self._scaler.update()  # lower where the gradient has overflown
        optimizer.zero_grad(set_to_none=True)
        return norm

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Of the whole gradient, of which this process has these parts."""
        # As nn.utils.get_total_norm does it, which first sorts tensors by their devices and types.
        norms = torch._foreach_norm(list(gradients)) if gradients else (torch.zeros((), device=self.device),)
        total: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        return total

    def discard(self, task: nn.Module) -> None:
        task.zero_grad(set_to_none=True)
        self.put_buffers_back(task)

    def put_buffers_back(self, task: nn.Module) -> None:
        """As they were before the step."""
        self._buffers.put_back(task)

    def state(self) -> dict[str, object]:
        return {"scaler": self._scaler.state_dict(), "parts": self._least_parts}

    def load_state(self, state: dict[str, object]) -> None:
        scaler, parts = state["scaler"], state.get("parts", 1)
        assert isinstance(scaler, dict)
        assert isinstance(parts, int)
        self._need_parts(parts)
        if scaler:
            self._scaler.load_state_dict(scaler)

    def _autocast(self, device: torch.device) -> AbstractContextManager[None]:
        if self.plan.precision not in HALF:
            return nullcontext()
        return torch.autocast(device.type, dtype=HALF[self.plan.precision])

    def _recomputing(self, task: nn.Module) -> AbstractContextManager[None]:
        if not self.plan.recompute:
            return nullcontext()
        return recomputing(task, draws_alone=len(self.own_clones) == 1)
