"""The contract of every strategy. Tests call these checks for each name of the registry."""

from __future__ import annotations

import copy
import json
from contextlib import suppress

import torch
from torch import Tensor, nn

from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.plan.plan import Plan


class WeightedTask(nn.Module):
    """A small network whose samples weigh as much as they have labels, like matched boxes in SSD:
    micro-batches weigh differently, and some nothing.
    """

    def __init__(self, unit: float = 1.0) -> None:
        """`unit` is the weight of a label."""
        super().__init__()
        self._unit = unit
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 4, 3))
        self.classes = nn.Linear(4, 3)

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase == "train"
        dtype = self.classes.weight.dtype
        scores = self.classes(self.features(batch.inputs.to(dtype) / 255).mean(dim=(2, 3)))
        weights = self._unit * (batch.targets["labels"] >= 0).sum(dim=1).to(dtype)
        errors = scores.square().sum(dim=1) - scores[:, 0]
        return Losses(
            terms={"class": (errors * weights).sum(), "box": (scores[:, 1] * weights.square()).sum()},
            weight=weights.sum(),
        )


def uneven_batch(num_samples: int) -> Batch:
    """Return samples of which number i has i * i % 7 labels: the first has none, neighbors differ."""
    noise = torch.Generator().manual_seed(3)
    labels = torch.full((num_samples, 7), -1)
    for i in range(num_samples):
        labels[i, : i * i % 7] = 0
    return Batch(
        inputs=torch.randint(0, 256, (num_samples, 3, 8, 8), dtype=torch.uint8, generator=noise),
        targets={"labels": labels},
        keys=tuple(f"sample {i}" for i in range(num_samples)),
    )


def make_task(dtype: torch.dtype, *, unit: float = 1.0) -> WeightedTask:
    """Return a task with the same values each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return WeightedTask(unit).to(dtype)


def expected_gradients(task: nn.Module, batch: Batch) -> dict[str, Tensor]:
    """Return gradients by definition: of the sum over all samples, divided by their weight if it is not 0."""
    copied = copy.deepcopy(task)
    losses: Losses = copied(batch)
    (losses.total() / (float(losses.weight) or 1.0)).backward()  # type: ignore[no-untyped-call]
    return {name: p.grad for name, p in copied.named_parameters() if p.grad is not None}


def check_gradients(
    plan: Plan, batch: Batch, *, dtype: torch.dtype, tolerance: float, unit: float = 1.0
) -> None:
    """Gradients are those of the whole batch at once, and losses are sums over all of it. A second call after
    `update` does not depend on the first. `unit` is the weight of a label.
    """
    with deploy(plan) as deployment:
        task = deployment.setup_module(make_task(dtype, unit=unit))
        for _ in range(2):
            expected = expected_gradients(task, batch)
            at_once: Losses = task(batch)
            losses = deployment.gradients(task, batch, "train")
            torch.testing.assert_close(losses.weight, at_once.weight)
            for name, value in losses.terms.items():
                assert not value.requires_grad
                torch.testing.assert_close(value, at_once.terms[name].detach())
            for name, parameter in task.named_parameters():
                assert parameter.grad is not None, name
                torch.testing.assert_close(parameter.grad, expected[name], rtol=tolerance, atol=tolerance)
            deployment.update(torch.optim.SGD(task.parameters(), lr=0.1), max_norm=None)


def check_updates(plan: Plan, batch: Batch) -> None:
    """`update` returns the norm before clipping, steps by the clipped gradient, and clears the gradients."""
    with deploy(plan) as deployment:
        task = deployment.setup_module(make_task(torch.float64))
        for max_norm in (None, 1e6, 0.01):
            before = [p.detach().clone() for p in task.parameters()]
            deployment.gradients(task, batch, "train")
            gradients = [p.grad.clone() for p in task.parameters() if p.grad is not None]
            norm = float(torch.cat([g.flatten() for g in gradients]).norm())
            returned = deployment.update(torch.optim.SGD(task.parameters(), lr=1.0), max_norm=max_norm)
            assert abs(returned - norm) <= 1e-12 * norm
            scale = 1.0 if max_norm is None else min(1.0, max_norm / norm)
            for parameter, old, gradient in zip(task.parameters(), before, gradients, strict=True):
                torch.testing.assert_close(parameter.detach(), old - scale * gradient, rtol=1e-4, atol=1e-8)
                assert parameter.grad is None


def check_skips_non_finite_gradients(plan: Plan, batch: Batch) -> None:
    """No step is made with a gradient that is not finite, and the next step works."""
    with deploy(plan) as deployment:
        task = deployment.setup_module(make_task(torch.float32))
        before = [p.detach().clone() for p in task.parameters()]
        optimizer = torch.optim.SGD(task.parameters(), lr=0.1, momentum=0.9)
        for bad in (float("inf"), float("nan")):
            deployment.gradients(task, batch, "train")
            first = next(task.parameters())
            assert first.grad is not None
            first.grad.view(-1)[0] = bad
            norm = deployment.update(optimizer, max_norm=1.0)
            assert not torch.tensor(norm).isfinite()
            for parameter, old in zip(task.parameters(), before, strict=True):
                assert torch.equal(parameter, old)
        deployment.gradients(task, batch, "train")
        assert torch.tensor(deployment.update(optimizer, max_norm=1.0)).isfinite()
        assert all(p.isfinite().all() for p in task.parameters())


def check_discards(plan: Plan, batch: Batch) -> None:
    """`discard` restores the statistics, clears the gradients, and the next step works."""
    with deploy(plan) as deployment:
        normed = make_task(torch.float64)
        normed.features.append(nn.BatchNorm2d(4).double())
        task = deployment.setup_module(normed)
        before = {name: value.clone() for name, value in task.state_dict().items()}
        deployment.gradients(task, batch, "train")
        assert not torch.equal(task.get_buffer("features.3.running_mean"), before["features.3.running_mean"])
        deployment.discard(task)
        for name, value in task.state_dict().items():
            assert torch.equal(value, before[name]), name
        assert all(parameter.grad is None for parameter in task.parameters())
        deployment.gradients(task, batch, "train")
        norm = deployment.update(torch.optim.SGD(task.parameters(), lr=0.1), max_norm=None)
        assert torch.tensor(norm).isfinite()


class Sizes(list[int]):
    """A list that copies of its owner share."""

    def __deepcopy__(self, memo: dict[int, object]) -> Sizes:
        return self


class HungryTask(WeightedTask):
    """Runs out of memory on more than `most` samples."""

    def __init__(self, most: int, error: RuntimeError) -> None:
        super().__init__()
        self.most = most
        self.error = error
        self.sizes = Sizes()

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        self.sizes.append(len(batch))
        if len(batch) > self.most:
            raise self.error
        return super().forward(batch, phase)


def check_runs_out_of_memory(plan: Plan, batch: Batch, error: RuntimeError) -> None:
    """A step that is too large for memory is computed in smaller micro-batches, with the same result, and so
    are those after it, also by a deployment that resumes from its state. The plan stays as it was.
    """
    most = 1
    with deploy(plan) as deployment:
        hungry = HungryTask(most, error).double()
        hungry.load_state_dict(make_task(torch.float64).state_dict())
        task = deployment.setup_module(hungry)
        expected = expected_gradients(make_task(torch.float64), batch)
        deployment.gradients(task, batch, "train")
        for name, parameter in task.named_parameters():
            assert parameter.grad is not None, name
            torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-10, atol=1e-10)
        assert max(hungry.sizes) > most, "it was tried"
        deployment.discard(task)
        hungry.sizes.clear()
        deployment.gradients(task, batch, "train")
        assert max(hungry.sizes) <= most
        assert deployment.plan == plan
        state = json.loads(json.dumps(deployment.state()))
        deployment.discard(task)
    hungry.sizes.clear()
    with deploy(plan) as resumed:
        resumed.load_state(state)
        resumed.gradients(task, batch, "train")
        assert max(hungry.sizes) <= most


def check_restores_threads(plan: Plan) -> None:
    """A deployment uses the plan's threads inside, and restores their number, also after an error."""
    before = torch.get_num_threads()
    with deploy(plan):
        assert torch.get_num_threads() == plan.threads
    assert torch.get_num_threads() == before
    with suppress(KeyError), deploy(plan):
        raise KeyError
    assert torch.get_num_threads() == before


def check_state(plan: Plan) -> None:
    """The state is JSON, and another deployment of the same plan can load it."""
    first, second = deploy(plan), deploy(plan)
    state = json.loads(json.dumps(first.state()))
    second.load_state(state)
    assert second.state() == first.state()


def check_devices_and_formats(plan: Plan) -> None:
    """Modules and inputs are moved to the plan's device and memory format; values stay."""
    deployment: Deployment = deploy(plan)
    task = make_task(torch.float32)
    state = {name: value.clone() for name, value in task.state_dict().items()}
    placed = deployment.setup_module(task)
    images = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    moved = deployment.to_device(images)
    formats = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
    for tensor in (moved, placed.get_parameter("features.0.weight")):
        assert tensor.device == torch.device(plan.parameter_device)
        assert tensor.is_contiguous(memory_format=formats[plan.memory_format])
    assert torch.equal(moved.cpu(), images)
    for name, value in placed.state_dict().items():
        assert torch.equal(value.cpu(), state[name])
