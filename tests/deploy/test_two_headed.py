"""A detector with two heads, whose losses have different counts, learns the same in any split of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import deploy
from boxcrew.detectors._base import DetectorNet
from boxcrew.nets.static import hashed_keys
from boxcrew.plan.plan import Plan
from boxcrew.tasks.cost.estimate import trace_workload
from boxcrew.tasks.detection import DetectionTask
from boxcrew.tasks.detection_inputs import largest_batch
from boxcrew.testing.detectors import CLASSES, check_any_split, check_draws, noise_batch
from tests.helpers import two_headed
from tests.helpers.plans import plan_of
from tests.helpers.two_headed import TwoHeaded, TwoHeadedConfig

NUM_OBJECTS = (4, 0, 1, 6, 2, 0, 3, 5)  # very different, so that counts of shares are too


def make_detector() -> TwoHeaded:
    torch.manual_seed(0)
    return TwoHeaded(TwoHeadedConfig(), CLASSES).double()


def make_batch(*, regions: bool) -> Batch:
    batch = noise_batch((64, 64), NUM_OBJECTS)
    if not regions:
        return batch
    generator = torch.Generator().manual_seed(1)
    low = torch.rand(len(batch), 20, 2, generator=generator) * 40
    boxes = torch.cat((low, low + 4 + 20 * torch.rand(len(batch), 20, 2, generator=generator)), dim=-1)
    valid = torch.arange(20) < torch.tensor(NUM_OBJECTS)[:, None] * 3
    return replace(batch, extra={"regions": boxes * valid[..., None], "regions_valid": valid})


def learn(plan: Plan, batch: Batch) -> tuple[Losses, dict[str, Tensor]]:
    """Return the losses of a step, and the gradients that it leaves for the update."""
    with deploy(plan) as deployment:
        task = deployment.setup_module(DetectionTask(make_detector()))
        losses = deployment.gradients(task, batch.select(deployment.positions), "train")
        gradients = {name: value.grad for name, value in task.named_parameters()}
    return losses, {name: value.clone() for name, value in gradients.items() if value is not None}


@pytest.mark.parametrize("regions", [False, True])
def test_any_split(regions: bool) -> None:
    check_any_split(make_detector(), make_batch(regions=regions))
    check_draws(make_detector(), make_batch(regions=regions))


@pytest.mark.parametrize("regions", [False, True])
@pytest.mark.parametrize(
    "plan",
    [
        plan_of(5, 3, strategy="clones"),
        plan_of(1, 7, strategy="clones", accumulation=2),
        plan_of(8, accumulation=3),
        plan_of(8, accumulation=8),
    ],
    ids=["clones 5+3", "clones 1+7 in 2 parts", "3 parts", "8 parts"],
)
def test_clones_and_accumulation_learn_the_same(plan: Plan, regions: bool) -> None:
    batch = make_batch(regions=regions)
    with two_headed.recorded() as chosen_alone:
        losses, gradients = learn(plan_of(8), batch)
    with two_headed.recorded() as chosen:
        split_losses, split_gradients = learn(plan, batch)
    assert chosen == chosen_alone
    assert sorted(chosen) == sorted(batch.draws.tolist())
    assert float(split_losses.weight) == float(losses.weight) == 8
    for name, value in losses.terms.items():
        torch.testing.assert_close(split_losses.terms[name], value, rtol=1e-10, atol=1e-10)
    assert split_gradients.keys() == gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(split_gradients[name], gradient, rtol=1e-10, atol=1e-10)


def test_the_same_anchors_are_chosen_alone_and_in_a_batch() -> None:
    detector, batch = make_detector(), make_batch(regions=True)
    with two_headed.recorded() as together:
        detector.losses(batch)
    with two_headed.recorded() as alone:
        for part in batch.split([1] * len(batch)):
            detector.losses(part)
    assert alone == together
    with two_headed.recorded() as redrawn:
        detector.losses(replace(batch, draws=batch.draws + 1))
    assert all(redrawn[draw + 1] != numbers for draw, numbers in together.items())


def test_regions_take_part() -> None:
    detector, batch = make_detector(), make_batch(regions=True)
    bare = replace(batch, extra={})
    assert not torch.equal(detector.losses(batch).terms["class"], detector.losses(bare).terms["class"])
    few, many = detector.eval()(bare.inputs), detector(batch.inputs, *batch.extra.values())
    assert many[0].shape[1] == few[0].shape[1] + 20
    torch.testing.assert_close(many[0][:, : few[0].shape[1]], few[0])
    detections = detector.predict(batch.inputs, *batch.extra.values())
    assert len(detections) == len(batch)


def by_chance(draws: Tensor, num: int) -> Tensor:
    return torch.randint(1 << 62, (len(draws), num))


def by_position(draws: Tensor, num: int) -> Tensor:
    return hashed_keys(torch.arange(len(draws)), num)


@pytest.mark.parametrize("keys", [by_chance, by_position])
@pytest.mark.parametrize("check", [check_any_split, check_draws])
def test_choices_by_anything_but_draws_are_noticed(
    keys: Callable[[Tensor, int], Tensor],
    check: Callable[[DetectorNet, Batch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(two_headed, "hashed_keys", keys)
    with pytest.raises(AssertionError):
        check(make_detector(), make_batch(regions=False))


class Means(TwoHeaded):
    """Divides by the number of images itself, as a detector without weights in its losses would."""

    def losses(self, batch: Batch) -> Losses:
        losses = super().losses(batch)
        terms = {name: value / losses.weight for name, value in losses.terms.items()}
        return Losses(terms=terms, weight=losses.weight)


def test_means_are_noticed() -> None:
    torch.manual_seed(0)
    with pytest.raises(AssertionError, match="in parts"):
        check_any_split(Means(TwoHeadedConfig(), CLASSES), make_batch(regions=False))


@pytest.mark.parametrize("num_regions", [None, 0, 30])
def test_planning_goes_through_it_without_data(num_regions: int | None) -> None:
    def examples(num: int) -> Batch:
        return largest_batch(num, canvas=(64, 64), num_objects=5, num_regions=num_regions)

    workload = trace_workload(DetectionTask(make_detector()), examples, slots=1, averages=False)
    assert workload.without_recompute.operations > 0
