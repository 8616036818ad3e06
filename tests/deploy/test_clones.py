"""Several clones in one process learn what one would."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.deploy.strategies.clones import Clones
from boxcrew.plan.plan import BatchNorm, Clone, Plan, Replica
from boxcrew.testing import learning
from boxcrew.testing.devices import FakeDevices
from boxcrew.testing.plans import plan_of

BATCH = 8
SHARES = ((8,), (4, 4), (5, 3), (3, 3, 2), (1, 7), (2, 2, 2, 2))
TOLERANCE = {"normed": 1e-6, "idle": 1e-6, "ssdlite": 1e-12}  # the last computes in float64


def plan(
    *shares: int,
    accumulation: int = 1,
    batch_norm: BatchNorm = "synced",
    devices: Sequence[str] | None = None,
) -> Plan:
    names = devices or ["cpu"] * len(shares)
    clones = tuple(Clone(device=name, share=share) for name, share in zip(names, shares, strict=True))
    return plan_of(
        *shares,
        strategy="clones",
        replicas=(Replica(clones=clones),),
        accumulation=accumulation,
        batch_norm=batch_norm,
    )


def learnt(one: Plan, name: str, devices: FakeDevices | None = None) -> tuple[dict[str, Tensor], list[float]]:
    with deploy(one, devices) as deployment:
        task = deployment.place(learning.make_task(name))
        losses, norms = learning.learn(deployment, task)
    return task.state_dict(), losses + norms


@cache
def learnt_alone(name: str, accumulation: int) -> tuple[dict[str, Tensor], list[float]]:
    return learnt(plan_of(BATCH, accumulation=accumulation), name)


@pytest.mark.parametrize("accumulation", [1, 2, 4])
@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("name", learning.TASKS)
def test_any_number_of_clones_with_any_shares_learn_the_same(
    name: str, shares: tuple[int, ...], accumulation: int
) -> None:
    wanted, numbers = learnt_alone(name, accumulation)
    state, told = learnt(plan(*shares, accumulation=accumulation), name)
    assert learning.distance(state, wanted) <= TOLERANCE[name]
    assert told == pytest.approx(numbers, rel=1e-5)


@pytest.mark.parametrize(
    "devices", [("cuda:0", "cuda:1"), ("cuda:0", "cpu"), ("cpu", "cuda:0")], ids="+".join
)
@pytest.mark.parametrize("name", learning.TASKS)
def test_clones_elsewhere_learn_the_same(name: str, devices: tuple[str, str]) -> None:
    """With memory of the CPU in the place of accelerators: everything is copied there and back."""
    fakes = FakeDevices()
    wanted, numbers = learnt_alone(name, 1)
    state, told = learnt(plan(5, 3, devices=devices), name, fakes)
    assert set(devices) <= set(fakes.found)
    assert learning.distance(state, wanted) <= TOLERANCE[name]
    assert told == pytest.approx(numbers, rel=1e-5)


def test_one_clone_elsewhere_is_the_optimizer_in_main_memory() -> None:
    wanted, _ = learnt_alone("normed", 1)
    state, _ = learnt(plan(BATCH, devices=["cuda:0"]), "normed", FakeDevices())
    assert learning.distance(state, wanted) == 0


def test_the_same_numbers_each_time() -> None:
    first, told = learnt(plan(3, 3, 2), "ssdlite")
    second, again = learnt(plan(3, 3, 2), "ssdlite")
    assert told == again
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def statistics(task: nn.Module) -> Tensor:
    return task.get_buffer("features.1.running_mean").clone()


@pytest.mark.parametrize("devices", [("cpu", "cpu"), ("cuda:0", "cuda:1")], ids="+".join)
def test_by_the_classic_rule_statistics_are_those_of_the_first_clone(devices: tuple[str, str]) -> None:
    batch = learning.make_batch(BATCH, step=0)
    alone = learning.make_task("normed")
    alone(batch.split([5, 3])[0], "train")
    one = plan(5, 3, batch_norm="first", devices=devices)
    with deploy(one, FakeDevices()) as deployment:
        task = deployment.place(learning.make_task("normed"))
        deployment.gradients(task, batch, "train")
    torch.testing.assert_close(statistics(task), statistics(alone))
    assert int(task.get_buffer("features.1.num_batches_tracked")) == 1


def test_a_step_taken_back_leaves_no_trace_in_any_clone() -> None:
    with deploy(plan(5, 3, devices=("cuda:0", "cpu")), FakeDevices()) as deployment:
        task = deployment.place(learning.make_task("normed"))
        before = {name: value.clone() for name, value in task.state_dict().items()}
        deployment.gradients(task, learning.make_batch(BATCH, step=0), "train")
        deployment.discard(task)
        assert all(torch.equal(value, before[name]) for name, value in task.state_dict().items())
        learning.learn(deployment, task)
    wanted, _ = learnt_alone("normed", 1)
    assert learning.distance(task.state_dict(), wanted) <= TOLERANCE["normed"]


def test_clones_follow_what_is_frozen_and_thawed() -> None:
    with deploy(plan(5, 3)) as deployment:
        task = deployment.place(learning.make_task("normed"))
        for learns in (False, True):
            task.get_submodule("features").requires_grad_(learns)
            deployment.gradients(task, learning.make_batch(BATCH, step=0), "train")
            assert (task.get_parameter("features.0.weight").grad is not None) == learns
            assert task.get_parameter("classes.weight").grad is not None
            deployment.discard(task)


class Failing(learning.NormedTask):
    """Fails for the sample that has this key, between two BatchNorms."""

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        if "6" in batch.keys:
            raise KeyError("not this one")
        return super().forward(batch, phase)


def test_a_clone_that_fails_frees_the_others_and_says_why() -> None:
    with deploy(plan(3, 3, 2)) as deployment:
        task = deployment.place(Failing())
        with pytest.raises(KeyError, match="not this one"):
            deployment.gradients(task, learning.make_batch(BATCH, step=0), "train")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("clone")]


class Counting(learning.NormedTask):
    """Notes with how many threads it was computed, and how many at once."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, int]] = []
        self.together = threading.Barrier(2)

    def __deepcopy__(self, memo: dict[int, Any]) -> Counting:
        other = Counting()
        other.load_state_dict(self.state_dict())
        other.seen, other.together = self.seen, self.together
        return other

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        self.together.wait(timeout=20)  # only passed if both are here at the same time
        self.seen.append((len(batch), torch.get_num_threads()))
        return super().forward(batch, phase)


def test_clones_work_at_the_same_time_each_with_its_part_of_the_threads() -> None:
    one = plan(5, 3).model_copy(update={"threads": 4})
    with deploy(one) as deployment:
        task = deployment.place(Counting())
        deployment.gradients(task, learning.make_batch(BATCH, step=0), "train")
        assert sorted(task.seen) == [(3, 2), (5, 2)]  # type: ignore[arg-type]
        assert torch.get_num_threads() == 4


@pytest.mark.parametrize("order", [("single", "clones"), ("clones", "single")], ids="->".join)
def test_what_one_strategy_saved_another_goes_on_with(order: tuple[str, str]) -> None:
    """With the same next losses."""
    plans = {"single": plan_of(BATCH), "clones": plan(5, 3)}
    wanted, numbers = learnt(plans[order[0]], "normed")
    with deploy(plans[order[0]]) as deployment:
        task = deployment.place(learning.make_task("normed"))
        _steps(deployment, task, range(2))
        state, kept = deployment.state(), task.state_dict()
    with deploy(plans[order[1]]) as other:
        again = learning.make_task("normed")
        again.load_state_dict(kept)
        other.place(again)
        other.load_state(state)
        losses = _steps(other, again, range(2, learning.STEPS))
    assert losses == pytest.approx(numbers[2 : learning.STEPS], rel=1e-5)
    assert learning.distance(again.state_dict(), wanted) <= TOLERANCE["normed"]


def _steps(deployment: Deployment, task: nn.Module, steps: range) -> list[float]:
    optimizer = torch.optim.SGD(task.parameters(), lr=0.05)
    found = []
    for step in steps:
        losses = deployment.gradients(task, learning.make_batch(BATCH, step=step), "train")
        found.append(float(losses.total() / losses.weight))
        deployment.update(optimizer, max_norm=None)
    return found


def test_a_batch_smaller_than_the_clones_and_no_thread_for_nothing() -> None:
    """As when images could not be read: clones without a sample have nothing to do."""
    batch = learning.make_batch(2, step=0)
    alone = learning.make_task("normed")
    with deploy(plan_of(BATCH)) as deployment:
        wanted = deployment.gradients(alone, batch, "train")
    with deploy(plan(2, 2, 2, 2)) as deployment:
        assert isinstance(deployment, Clones)
        task = deployment.place(learning.make_task("normed"))
        losses = deployment.gradients(task, batch, "train")
    torch.testing.assert_close(losses.total(), wanted.total())
    for one, other in zip(task.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
