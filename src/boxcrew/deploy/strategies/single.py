"""One clone on one device."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import STRATEGIES, Deployment
from boxcrew.plan.plan import Plan

_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


@STRATEGIES.register("single")
class Single(Deployment):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=plan.precision == "fp16")
        self._format = _FORMATS[plan.memory_format]

    def place(self, module: nn.Module) -> nn.Module:
        return module.to(self.device).to(memory_format=self._format)

    def move(self, inputs: Tensor) -> Tensor:
        return inputs.to(self.device, memory_format=self._format, non_blocking=True)

    def gradients(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        total: Losses | None = None
        for part in batch.split(self.plan.micro_batches(len(batch))):
            moved = part.to(self.device, memory_format=self._format)
            with self._autocast():
                losses: Losses = task(moved, phase)
            self._scaler.scale(losses.total()).backward()  # type: ignore[no-untyped-call]
            done = losses.detach()
            total = done if total is None else total + done
        assert total is not None
        # The weight of the whole step is known only now; gradients are linear, so they are divided instead.
        gradients = [p.grad for p in task.parameters() if p.grad is not None]
        torch._foreach_div_(gradients, total.weight.clamp(min=1))
        return total

    def update(self, optimizer: Optimizer, *, max_norm: float | None) -> float:
        self._scaler.unscale_(optimizer)
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        limit = max_norm if max_norm is not None else math.inf
        norm = float(nn.utils.clip_grad_norm_(parameters, limit))
        if math.isfinite(norm) or self._scaler.is_enabled():  # a scaler leaves such steps out itself
            self._scaler.step(optimizer)
            self._scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return norm

    def state(self) -> dict[str, object]:
        return {"scaler": self._scaler.state_dict()}

    def load_state(self, state: dict[str, object]) -> None:
        scaler = state["scaler"]
        assert isinstance(scaler, dict)
        if scaler:
            self._scaler.load_state_dict(scaler)

    def _autocast(self) -> AbstractContextManager[None]:
        dtype = torch.bfloat16 if self.plan.precision == "bf16" else torch.float16
        return torch.autocast(self.device.type, dtype=dtype, enabled=self.plan.precision != "fp32")
