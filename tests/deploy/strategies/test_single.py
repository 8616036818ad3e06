"""One clone on one device, with a real detector's losses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import deploy
from boxcrew.deploy.memory import keep_freed_memory
from boxcrew.detectors.ssdlite import SsdLite, SsdLiteConfig
from boxcrew.nets.layers import eval_mode
from boxcrew.plan.plan import Plan, Precision
from boxcrew.tasks.detection import DetectionTask
from boxcrew.testing.strategies import HungryTask
from tests.helpers.plans import plan_of

SIZE = 64


def plan(*, accumulation: int = 1, precision: Precision = "fp32") -> Plan:
    return plan_of(
        6,
        accumulation=accumulation,
        precision=precision,
        memory_format="channels_last",
    )


@pytest.fixture(scope="module")
def task() -> DetectionTask:
    torch.manual_seed(0)
    config = SsdLiteConfig(size=SIZE, backbone="mobilenetv3_small_050")
    return DetectionTask(SsdLite(config, ("cup", "pot")))


@pytest.fixture
def batch() -> Batch:
    """Images with no object at all up to five: the micro-batches of a step weigh very differently."""
    draw = torch.Generator().manual_seed(1)
    labels = torch.full((6, 6), -1)
    for i in range(6):
        labels[i, :i] = torch.arange(i) % 2
    corners = torch.rand(6, 6, 2, generator=draw) * SIZE / 2
    sides = 4 + torch.rand(6, 6, 2, generator=draw) * SIZE / 3
    return Batch(
        inputs=torch.randint(0, 256, (6, 3, SIZE, SIZE), dtype=torch.uint8, generator=draw),
        targets={"boxes": torch.cat((corners, corners + sides), dim=-1), "labels": labels},
        keys=tuple("abcdef"),
    )


def gradients(task: DetectionTask, batch: Batch, plan: Plan) -> tuple[list[Tensor], Losses]:
    """Compute in eval mode: with BatchNorms in training mode no split can give the same."""
    task.zero_grad()
    with deploy(plan) as deployment, eval_mode(task):
        losses = deployment.gradients(task, batch, "train")
    computed = [p.grad.clone() for p in task.parameters() if p.grad is not None]
    task.zero_grad()
    return computed, losses


class ExactTask(DetectionTask):
    """A task in float64 throughout; a detector itself computes its loss in float32."""

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase == "train"
        detector = self.detector
        assert isinstance(detector, SsdLite)
        scores, offsets = detector(batch.inputs)
        targets = {**batch.targets, "boxes": batch.targets["boxes"].double()}
        return detector.multibox_losses(detector.anchors, scores, offsets, targets)


@pytest.mark.parametrize("accumulation", [2, 3, 6])
def test_accumulation_is_exact(batch: Batch, accumulation: int) -> None:
    torch.manual_seed(0)
    config = SsdLiteConfig(size=SIZE, backbone="mobilenetv3_small_050")
    task = ExactTask(SsdLite(config, ("cup", "pot"))).double()
    expected_gradients, _ = gradients(task, batch, plan())
    parts, _ = gradients(task, batch, plan(accumulation=accumulation))
    for expected, actual in zip(expected_gradients, parts, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10 * float(expected.abs().max()))


@pytest.mark.parametrize("accumulation", [2, 3, 6])
def test_accumulation_gives_the_same_gradient(task: DetectionTask, batch: Batch, accumulation: int) -> None:
    expected_gradients, losses = gradients(task, batch, plan())
    parts, summed = gradients(task, batch, plan(accumulation=accumulation))
    assert float(losses.weight) > 6
    assert float(summed.weight) == float(losses.weight)
    scale = max(float(g.abs().max()) for g in expected_gradients)
    for expected, actual in zip(expected_gradients, parts, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-5 * scale)


def test_means_of_parts_would_not_give_it(task: DetectionTask, batch: Batch) -> None:
    """The batch is uneven enough: each micro-batch divided by its own weight is far off."""
    expected_gradients, _ = gradients(task, batch, plan())
    parts = [gradients(task, samples, plan())[0] for samples in batch.split([2, 2, 2])]
    means = [torch.stack(p).mean(dim=0) for p in zip(*parts, strict=True)]
    off = sum(float((a - b).norm()) for a, b in zip(means, expected_gradients, strict=True))
    assert off > 0.1 * sum(float(g.norm()) for g in expected_gradients)


def test_lower_precision_computes_nearly_the_same(task: DetectionTask, batch: Batch) -> None:
    expected_gradients, losses = gradients(task, batch, plan())
    low, rough = gradients(task, batch, plan(precision="bf16"))
    assert float(rough.total()) == pytest.approx(float(losses.total()), rel=0.05)
    assert all(g.dtype == torch.float32 for g in low)
    both = [torch.cat([g.flatten() for g in some]) for some in (expected_gradients, low)]
    assert torch.cosine_similarity(both[0], both[1], dim=0) > 0.95


def test_the_allocator_can_be_set_up_twice() -> None:
    assert keep_freed_memory() == keep_freed_memory()


def test_not_even_one_sample_fits(batch: Batch) -> None:
    hungry = HungryTask(0, torch.OutOfMemoryError("out of memory: 9 GiB"))
    with (
        deploy(plan()) as deployment,
        pytest.raises(BoxcrewError, match="even in 6 micro-batches: out of memory"),
    ):
        deployment.gradients(hungry, batch, "train")
    assert hungry.sizes == [6, 3, 2, 1], "whole, in two, in four, one by one"


def test_statistics_that_cannot_be_had_from_one_sample(batch: Batch) -> None:
    """BatchNorm on 1 x 1 maps refuses a single sample: the error is about memory."""

    class Needy(HungryTask):
        def forward(self, batch: Batch, phase: str = "train") -> Losses:
            losses = super().forward(batch, phase)
            nn.BatchNorm1d(4)(torch.zeros(len(batch), 4))
            return losses

    hungry = Needy(1, torch.OutOfMemoryError("out of memory"))
    with deploy(plan()) as deployment, pytest.raises(BoxcrewError, match=r"not enough memory .* more than 1"):
        deployment.gradients(hungry, batch, "train")


def test_another_error_is_passed_on(batch: Batch) -> None:
    hungry = HungryTask(0, RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with deploy(plan()) as deployment, pytest.raises(RuntimeError, match="mat1 and mat2"):
        deployment.gradients(hungry, batch, "train")
    assert hungry.sizes == [6]
