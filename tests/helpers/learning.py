"""Tasks to show that they learn the same with every strategy as with one clone, and some steps of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import Deployment
from boxcrew.detectors.ssdlite import SsdLite, SsdLiteConfig
from boxcrew.tasks.detection import DetectionTask
from tests.helpers.tiny import BACKBONE

SIZE = 64
STEPS = 3


class NormedTask(nn.Module):
    """A classifier whose BatchNorms mix the samples of a step."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)
        )
        self.classes = nn.Linear(8, 4)

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase == "train"
        scores = self.classes(self.features(batch.inputs.float() / 255).mean(dim=(2, 3)))
        labels = batch.targets["labels"][:, 0].clamp(min=0) % 4
        loss = nn.functional.cross_entropy(scores, labels, reduction="sum")
        return Losses(terms={"class": loss}, weight=loss.new_tensor(float(len(batch))))


class IdleTask(NormedTask):
    """Some of its parameters are used by no sample, and some by few."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Linear(8, 4)
        self.rare = nn.Linear(1, 1)

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        losses = super().forward(batch, phase)
        crowded = (batch.targets["labels"] >= 0).sum(dim=1) >= 4
        if not crowded.any():
            return losses
        seen = batch.inputs[crowded].float().mean(dim=(1, 2, 3)) / 255
        return Losses(
            terms={"class": losses.terms["class"] + self.rare(seen[:, None]).sum()}, weight=losses.weight
        )


class ExactDetection(DetectionTask):
    """A detection task in float64 throughout. With less, the choice of hard negatives changes now and then,
    and that is not what these tests are about.
    """

    def __init__(self) -> None:
        config = SsdLiteConfig(size=SIZE, backbone=BACKBONE)
        super().__init__(SsdLite(config, ("cup", "pot")))
        self.double()


TASKS: dict[str, type[nn.Module]] = {"normed": NormedTask, "idle": IdleTask, "ssdlite": ExactDetection}


def make_task(name: str) -> nn.Module:
    """Return a task with the same values each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TASKS[name]().train()


def make_batch(num_samples: int, *, step: int) -> Batch:
    """Sample i has (i + step) % 6 objects, so that shares weigh very differently."""
    draw = torch.Generator().manual_seed(step)
    labels = torch.full((num_samples, 6), -1)
    for i in range(num_samples):
        count = (i + step) % 6
        labels[i, :count] = torch.arange(count) % 2
    corners = torch.rand(num_samples, 6, 2, generator=draw) * SIZE / 2
    sides = 4 + torch.rand(num_samples, 6, 2, generator=draw) * SIZE / 3
    return Batch(
        inputs=torch.randint(0, 256, (num_samples, 3, SIZE, SIZE), dtype=torch.uint8, generator=draw),
        targets={"boxes": torch.cat((corners, corners + sides), dim=-1), "labels": labels},
        keys=tuple(map(str, range(num_samples))),
    )


def learn(
    deployment: Deployment,
    task: nn.Module,
    *,
    optimizer: Optimizer | None = None,
    steps: Iterable[int] = range(STEPS),
) -> tuple[list[float], list[float]]:
    """Return the loss and the norm of the gradient of some steps, by default of plain SGD."""
    optimizer = optimizer or torch.optim.SGD(task.parameters(), lr=0.05)
    values, norms = [], []
    for step in steps:
        batch = make_batch(deployment.plan.batch, step=step).select(deployment.positions)
        losses = deployment.gradients(task, batch, "train")
        values.append(float(losses.total() / losses.weight))
        norms.append(deployment.update(optimizer, max_norm=None))
    return values, norms


def distance(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> float:
    """Return how far two tasks are apart, relative to the norm: the larger of the distances of all parameters
    together, as single biases may be almost zero, and of all BatchNorm statistics. Counters must be equal.
    """
    assert state.keys() == wanted.keys()
    learned, statistics = [], []
    for name, value in wanted.items():
        if not value.is_floating_point():
            assert torch.equal(state[name].cpu(), value.cpu()), name
        elif "running" in name:
            statistics.append(name)
        elif not name.endswith((".mean", ".std")):  # of pixels: large, and constant
            learned.append(name)
    return max(_relative(state, wanted, names) for names in (learned, statistics) if names)


def _relative(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor], names: Sequence[str]) -> float:
    ours, theirs = (
        torch.cat([of[name].double().cpu().flatten() for name in names]) for of in (state, wanted)
    )
    return float((ours - theirs).norm() / theirs.norm())
