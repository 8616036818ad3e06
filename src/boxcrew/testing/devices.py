"""The contract of devices: a step computes where the task is. Tests call it without a GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.optim import Optimizer

from boxcrew.core.torch_tools.dispatch import tensors_in
from boxcrew.core.torch_tools.fake import fake_copy, fake_tensors
from boxcrew.core.types import Batch
from boxcrew.detectors import DetectorNet, input_hw
from boxcrew.nets.layers import eval_mode
from boxcrew.tasks.base import Task, freeze_other_phases


def check_devices(
    task: Task, batch: Batch, make_optimizer: Callable[[Task], Optimizer] | None = None
) -> None:
    """Check on a fake `cuda` that losses, forward, decoding and the update mix no devices and read no values.

    Backward needs a real device, so a loss that computes gradients itself cannot be checked. Optimizers must
    not be fused: some of those kernels need data.
    """
    with fake_tensors():
        task, batch = fake_copy(task), fake_copy(batch)
        for phase in task.phases:
            with freeze_other_phases(task, phase):
                _require_cuda(vars(task(batch, phase)))
        network = task.network
        with torch.no_grad(), eval_mode(network):
            raw = network(*task.network_inputs(batch))
            _require_cuda(raw)
            if isinstance(network, DetectorNet):
                _require_cuda(vars(network.decode(raw, input_hw(batch.inputs))))
        if make_optimizer is not None:
            optimizer = make_optimizer(task)
            for parameter in task.parameters():
                parameter.grad = torch.empty_like(parameter)
            optimizer.step()


def _require_cuda(values: object) -> None:
    assert {tensor.device.type for tensor in tensors_in(values)} == {"cuda"}
