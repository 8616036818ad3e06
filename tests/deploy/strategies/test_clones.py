"""Several clones in one process learn what one would."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.deploy.strategies.clones import Clones
from boxcrew.plan.plan import BatchNorm, Clone, Plan, Precision, Replica
from tests.helpers import learning
from tests.helpers.devices import FakeDevices
from tests.helpers.plans import plan_of

BATCH = 8
SHARES = ((8,), (4, 4), (5, 3), (3, 3, 2), (1, 7), (2, 2, 2, 2))
TOLERANCE = {"normed": 1e-6, "idle": 1e-6, "ssdlite": 1e-10}  # the last computes in float64


def make_plan(
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


def learned(
    plan: Plan, name: str, devices: FakeDevices | None = None
) -> tuple[dict[str, Tensor], list[float]]:
    with deploy(plan, devices) as deployment:
        task = deployment.setup_module(learning.make_task(name))
        losses, norms = learning.learn(deployment, task)
    return task.state_dict(), losses + norms


@cache
def learned_alone(name: str, accumulation: int) -> tuple[dict[str, Tensor], list[float]]:
    return learned(plan_of(BATCH, accumulation=accumulation), name)


SMALL = [(name, shares, parts) for name in ("normed", "idle") for shares in SHARES for parts in (1, 2, 4)]
LARGE = [((4, 4), 1), ((5, 3), 2), ((3, 3, 2), 1), ((2, 2, 2, 2), 2), ((1, 7), 4)]


@pytest.mark.parametrize(
    ("name", "shares", "accumulation"), [*SMALL, *(("ssdlite", shares, parts) for shares, parts in LARGE)]
)
def test_any_number_of_clones_with_any_shares_learn_the_same(
    name: str, shares: tuple[int, ...], accumulation: int
) -> None:
    wanted, numbers = learned_alone(name, accumulation)
    state, own_numbers = learned(make_plan(*shares, accumulation=accumulation), name)
    assert learning.distance(state, wanted) <= TOLERANCE[name]
    assert own_numbers == pytest.approx(numbers, rel=1e-5)


@pytest.mark.parametrize(
    "devices", [("cuda:0", "cuda:1"), ("cuda:0", "cpu"), ("cpu", "cuda:0")], ids="+".join
)
@pytest.mark.parametrize("name", learning.TASKS)
def test_clones_elsewhere_learn_the_same(name: str, devices: tuple[str, str]) -> None:
    """The CPU's memory stands for accelerators: everything is copied there and back."""
    fakes = FakeDevices()
    wanted, numbers = learned_alone(name, 1)
    state, own_numbers = learned(make_plan(5, 3, devices=devices), name, fakes)
    assert set(devices) <= set(fakes.used)
    assert learning.distance(state, wanted) <= TOLERANCE[name]
    assert own_numbers == pytest.approx(numbers, rel=1e-5)


def test_one_clone_elsewhere_is_the_optimizer_in_main_memory() -> None:
    wanted, _ = learned_alone("normed", 1)
    state, _ = learned(make_plan(BATCH, devices=["cuda:0"]), "normed", FakeDevices())
    assert learning.distance(state, wanted) == 0


def test_the_same_numbers_each_time() -> None:
    first, own_numbers = learned(make_plan(3, 3, 2), "ssdlite")
    second, again = learned(make_plan(3, 3, 2), "ssdlite")
    assert own_numbers == again
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def statistics(task: nn.Module) -> Tensor:
    return task.get_buffer("features.1.running_mean").clone()


@pytest.mark.parametrize("devices", [("cpu", "cpu"), ("cuda:0", "cuda:1")], ids="+".join)
def test_by_the_classic_rule_statistics_are_those_of_the_first_clone(devices: tuple[str, str]) -> None:
    batch = learning.make_batch(BATCH, step=0)
    alone = learning.make_task("normed")
    alone(batch.split([5, 3])[0], "train")
    plan = make_plan(5, 3, batch_norm="first", devices=devices)
    with deploy(plan, FakeDevices()) as deployment:
        task = deployment.setup_module(learning.make_task("normed"))
        deployment.gradients(task, batch, "train")
    torch.testing.assert_close(statistics(task), statistics(alone))
    assert int(task.get_buffer("features.1.num_batches_tracked")) == 1


def test_a_step_taken_back_leaves_no_trace_in_any_clone() -> None:
    with deploy(make_plan(5, 3, devices=("cuda:0", "cpu")), FakeDevices()) as deployment:
        task = deployment.setup_module(learning.make_task("normed"))
        before = {name: value.clone() for name, value in task.state_dict().items()}
        deployment.gradients(task, learning.make_batch(BATCH, step=0), "train")
        deployment.discard(task)
        assert all(torch.equal(value, before[name]) for name, value in task.state_dict().items())
        learning.learn(deployment, task)
    wanted, _ = learned_alone("normed", 1)
    assert learning.distance(task.state_dict(), wanted) <= TOLERANCE["normed"]


def test_clones_are_frozen_and_thawed_with_the_task() -> None:
    with deploy(make_plan(5, 3)) as deployment:
        task = deployment.setup_module(learning.make_task("normed"))
        for learns in (False, True):
            task.get_submodule("features").requires_grad_(learns)
            deployment.gradients(task, learning.make_batch(BATCH, step=0), "train")
            assert (task.get_parameter("features.0.weight").grad is not None) == learns
            assert task.get_parameter("classes.weight").grad is not None
            deployment.discard(task)


class Failing(learning.NormedTask):
    """Fails for the sample that has this key: between two BatchNorms, or on the way back."""

    def __init__(self, *, backward: bool) -> None:
        super().__init__()
        self.backward = backward
        self.features.insert(2, Trap())

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        trap = self.features[2]
        assert isinstance(trap, Trap)
        trap.set = "6" in batch.keys
        trap.backward = self.backward
        return super().forward(batch, phase)


class Trap(nn.Module):
    set = backward = False

    def forward(self, features: Tensor) -> Tensor:
        if self.set and not self.backward:
            raise KeyError("not this one")
        if self.set:
            features.register_hook(self._snap)  # type: ignore[no-untyped-call]
        return features

    def _snap(self, _: Tensor) -> None:
        raise KeyError("not this one")


@pytest.mark.parametrize("backward", [False, True])
def test_a_clone_that_fails_frees_the_others_and_says_why(backward: bool) -> None:
    with deploy(make_plan(3, 3, 2)) as deployment:
        task = deployment.setup_module(Failing(backward=backward))
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
    plan = make_plan(5, 3).model_copy(update={"threads": 4})
    with deploy(plan) as deployment:
        task = deployment.setup_module(Counting())
        deployment.gradients(task, learning.make_batch(BATCH, step=0), "train")
        assert sorted(task.seen) == [(3, 2), (5, 2)]  # type: ignore[arg-type]
        assert torch.get_num_threads() == 4


@pytest.mark.parametrize("order", [("single", "clones"), ("clones", "single")], ids="->".join)
def test_what_one_strategy_saved_another_goes_on_with(order: tuple[str, str]) -> None:
    """The next losses are the same."""
    plans = {"single": plan_of(BATCH), "clones": make_plan(5, 3)}
    wanted, numbers = learned(plans[order[0]], "normed")
    with deploy(plans[order[0]]) as deployment:
        task = deployment.setup_module(learning.make_task("normed"))
        _steps(deployment, task, range(2))
        state, kept = deployment.state(), task.state_dict()
    with deploy(plans[order[1]]) as other:
        again = learning.make_task("normed")
        again.load_state_dict(kept)
        other.setup_module(again)
        other.load_state(state)
        losses = _steps(other, again, range(2, learning.STEPS))
    assert losses == pytest.approx(numbers[2 : learning.STEPS], rel=1e-5)
    assert learning.distance(again.state_dict(), wanted) <= TOLERANCE["normed"]


def _steps(deployment: Deployment, task: nn.Module, steps: range) -> list[float]:
    optimizer = torch.optim.SGD(task.parameters(), lr=0.05)
    values = []
    for step in steps:
        losses = deployment.gradients(task, learning.make_batch(BATCH, step=step), "train")
        values.append(float(losses.total() / losses.weight))
        deployment.update(optimizer, max_norm=None)
    return values


class Fickle(learning.NormedTask):
    """Leaves a BatchNorm out for some samples."""

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        norm = self.features[1]
        if "7" in batch.keys:
            self.features[1] = nn.Identity()
        try:
            return super().forward(batch, phase)
        finally:
            self.features[1] = norm


def test_clones_at_different_norms_are_an_error() -> None:
    with deploy(make_plan(5, 3)) as deployment:
        task = Fickle()
        task.features[4] = nn.BatchNorm2d(8)
        task.features[3] = nn.Conv2d(8, 4, 3)
        task.features[4] = nn.BatchNorm2d(4)
        task.classes = nn.Linear(4, 4)
        deployment.setup_module(task)
        with pytest.raises(BoxcrewError, match="clones are at different BatchNorms"):
            deployment.gradients(task, learning.make_batch(BATCH, step=0), "train")


class Hungry(learning.NormedTask):
    """Has no memory for more than two samples, and notes whether its earlier tensors are still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[weakref.ref[Tensor]] = []
        self.alive: list[bool] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Hungry:
        other = Hungry()
        other.load_state_dict(self.state_dict())
        other.kept, other.alive = self.kept, self.alive
        return other

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        if len(batch) > 2:
            made = torch.zeros(9)
            self.kept.append(weakref.ref(made))
            raise torch.OutOfMemoryError("out of memory")
        self.alive += [reference() is not None for reference in self.kept]
        return super().forward(batch, phase)


def test_where_memory_runs_out_all_of_a_failed_try_is_freed_at_once() -> None:
    """It does not wait for the garbage collector, and devices are asked to free memory too."""
    fakes = FakeDevices()
    gc.disable()
    try:
        with deploy(make_plan(4, 4, devices=("cuda:0", "cuda:1")), fakes) as deployment:
            task = deployment.setup_module(Hungry())
            deployment.gradients(task, learning.make_batch(BATCH, step=0), "train")
    finally:
        gc.enable()
    assert isinstance(task, Hungry)
    assert task.alive
    assert not any(task.alive)
    assert fakes.released == ["cuda:0", "cuda:1"]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_lower_precision_computes_nearly_the_same(precision: Precision) -> None:
    _, wanted = learned_alone("normed", 1)
    low = make_plan(5, 3, devices=("cuda:0", "cpu")).model_copy(update={"precision": precision})
    with deploy(low, FakeDevices()) as deployment:
        if precision == "fp16":  # its scale begins so high that the first steps are lost in finding it
            scaler = {"scale": 256.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000}
            deployment.load_state({"scaler": {**scaler, "_growth_tracker": 0}, "parts": 1})
        task = deployment.setup_module(learning.make_task("normed"))
        losses, norms = learning.learn(deployment, task)
    assert losses + norms == pytest.approx(wanted, rel=0.05)


def test_a_single_sample_that_a_norm_refuses_is_an_error() -> None:
    task = learning.NormedTask()
    task.features.append(nn.AdaptiveAvgPool2d(1))
    task.features.append(nn.BatchNorm2d(8))
    with (
        deploy(make_plan(7, 1, batch_norm="first")) as deployment,
        pytest.raises(BoxcrewError, match="a clone has only one sample"),
    ):
        deployment.gradients(deployment.setup_module(task), learning.make_batch(BATCH, step=0), "train")


def test_a_batch_smaller_than_the_clones() -> None:
    """Images could not be read, so clones without a sample have nothing to do."""
    batch = learning.make_batch(2, step=0)
    alone = learning.make_task("normed")
    with deploy(plan_of(BATCH)) as deployment:
        wanted = deployment.gradients(alone, batch, "train")
    with deploy(make_plan(2, 2, 2, 2)) as deployment:
        assert isinstance(deployment, Clones)
        task = deployment.setup_module(learning.make_task("normed"))
        losses = deployment.gradients(task, batch, "train")
    torch.testing.assert_close(losses.total(), wanted.total())
    for parameter, original in zip(task.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, original.grad)


def test_an_eval_copy_has_the_learned_values_and_is_not_trained() -> None:
    with deploy(make_plan(5, 3, devices=("cuda:0", "cpu")), FakeDevices()) as deployment:
        task = deployment.setup_module(learning.make_task("normed"))
        learning.learn(deployment, task)
        copied = deployment.eval_copy(task)
        assert learning.distance(copied.state_dict(), task.state_dict()) == 0
        assert copied is not task
    with deploy(make_plan(5, 3)) as deployment:
        assert deployment.eval_copy(task) is task
