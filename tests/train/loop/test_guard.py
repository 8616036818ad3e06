"""Bad steps are skipped, named and counted; after several the run rolls back."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.types import Batch, Losses
from boxcrew.tasks.base import Task
from boxcrew.train.config import SaverConfig
from boxcrew.train.loop.checkpoint import list_checkpoints, newest_checkpoint
from boxcrew.train.loop.guard import Guard, GuardConfig
from boxcrew.train.loop.hooks.ema import Ema
from boxcrew.train.loop.hooks.saver import Saver
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer

MakeTrainer = Callable[..., Trainer]
BAD_IMAGE = "bad.jpg"


@dataclass
class World:
    """The faults to inject at each step; not part of any run."""

    bad_steps: set[int] = field(default_factory=set)
    times: int = 10**6  # that it goes wrong, in all
    fault: str = "loss"

    def goes_wrong(self, batch: Batch) -> bool:
        if BAD_IMAGE not in batch.keys or self.times == 0:
            return False
        self.times -= 1
        return True

    def batches(self, step: int) -> Iterator[Batch]:
        while True:
            noise = torch.Generator().manual_seed(step)
            name = BAD_IMAGE if step + 1 in self.bad_steps else "good.jpg"
            yield Batch(inputs=torch.randn(6, 3, generator=noise), targets={}, keys=(*"abcde", name))
            step += 1


class Fragile(Task):
    """A task with BatchNorm statistics and random numbers."""

    def __init__(self, world: World) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
        self._world = world

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase == "train"
        total = self.body(batch.inputs).square().sum()
        if self._world.goes_wrong(batch):
            first = self.get_parameter("body.0.weight").view(-1)[0]
            match self._world.fault:
                case "loss":
                    total = total * float("nan")
                case "gradient":  # the root of zero: itself a number, its slope is not
                    total = total + ((first - first.detach()) ** 2).sqrt()
                case "spike":
                    total = total * 1e4
        return Losses(terms={"class": total}, weight=torch.tensor(float(len(batch))))


class Notes(Hook):
    name = "notes"

    def __init__(self, *, stop_at: int | None = None) -> None:
        self.reports: list[StepReport] = []
        self._stop_at = stop_at

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        self.reports.append(report)
        if trainer.step == self._stop_at:
            trainer.interrupt("a test")


def numbers(task: Task) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in task.state_dict().items()}


def require_equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


@pytest.mark.parametrize(
    ("fault", "message"),
    [("loss", "the loss is nan"), ("gradient", "gradient's norm is nan"), ("spike", "times the usual")],
)
def test_a_bad_step_leaves_no_trace_but_its_name(make_trainer: MakeTrainer, fault: str, message: str) -> None:
    world = World(bad_steps={7}, fault=fault)
    warnings: list[str] = []
    guard = Guard(GuardConfig(window=4), warn=warnings.append, last_good=lambda before: None)
    task = Fragile(world)
    ema = Ema(task, decay=0.5)
    seen: dict[int, list[dict[str, Tensor]]] = {}

    class Look(Hook):
        name = "look"

        def after_step(self, trainer: Trainer, report: StepReport) -> None:
            seen[trainer.step] = [numbers(task), numbers(ema.eval_copy(trainer))]

    notes = Notes()
    trainer = make_trainer(task, [ema, notes, Look()], guard=guard, rate=0.01)
    trainer.fit(world.batches)
    assert trainer.step == 10
    for before, after in zip(seen[6], seen[7], strict=True):
        require_equal(before, after)
    assert not torch.equal(seen[7][0]["body.0.weight"], seen[8][0]["body.0.weight"])
    assert not torch.equal(seen[7][0]["body.1.running_mean"], seen[8][0]["body.1.running_mean"])
    assert len(warnings) == 1
    assert warnings[0].startswith("step 7 is skipped")
    assert message in warnings[0]
    assert BAD_IMAGE in warnings[0]
    assert [report.fault is not None for report in notes.reports] == [i == 6 for i in range(10)]
    assert (guard.skipped_steps, guard.failures, guard.rollbacks) == (1, 0, 0)


def test_a_spike_is_told_from_what_is_usual() -> None:
    guard = Guard(GuardConfig(window=3, spike=10), warn=print, last_good=lambda before: None)
    for loss in (1.0, 2.0):
        assert guard.fault_of_loss(1e9, "train") is None, "nothing is usual yet"
        guard.record_success({"train": loss})
    guard.record_success({"train": 300.0})
    assert guard.fault_of_loss(19.0, "train") is None
    assert "20.5, 10 times the usual 2" in (guard.fault_of_loss(20.5, "train") or "")
    unlimited = Guard(GuardConfig(spike=None), warn=print, last_good=lambda before: None)
    assert unlimited.fault_of_loss(1e30, "train") is None


def test_what_was_usual_at_first_is_never_too_much() -> None:
    """One hard sample, where nearly all is learned."""
    guard = Guard(GuardConfig(window=3, spike=10), warn=print, last_good=lambda before: None)
    for loss in (2.3, 2.2, 2.1, 0.001, 0.001, 0.001):
        guard.record_success({"train": loss})
    assert guard.fault_of_loss(2.1, "train") is None
    assert "times the usual 0.001" in (guard.fault_of_loss(2.3, "train") or "")


def test_what_is_usual_is_so_in_a_phase() -> None:
    """A loss that has been negative only has to be finite."""
    guard = Guard(GuardConfig(window=3, spike=10), warn=print, last_good=lambda before: None)
    for generator in (-0.99, 3.0, 2.0):
        guard.record_success({"critic": 1.0, "generator": generator})
    guard.record_success({"critic": 1.0})
    assert guard.fault_of_loss(9.0, "critic") is None
    assert "11, 11 times the usual 1" in (guard.fault_of_loss(11.0, "critic") or "")
    assert guard.fault_of_loss(1e6, "generator") is None
    assert guard.fault_of_loss(math.inf, "generator") == "the loss is inf"
    again = Guard(GuardConfig(window=3, spike=10), warn=print, last_good=lambda before: None)
    again.load_state(json.loads(json.dumps(guard.state())))
    assert again.state() == guard.state()


class Pair(Task):
    """Two phases whose losses nearly cancel out."""

    phases = ("critic", "generator")

    def __init__(self, world: World) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.critic, self.generator = nn.Linear(3, 1), nn.Linear(3, 1)
        self._world = world

    def learns_in(self, phase: str, name: str) -> bool:
        return name.startswith(phase)

    def forward(self, batch: Batch, phase: str = "critic") -> Losses:
        score = self.get_submodule(phase)(batch.inputs).sum()
        total = score - score.detach() + len(batch) * (1.0 if phase == "critic" else -0.99)
        if phase == "generator" and self._world.goes_wrong(batch):
            total = total * float("nan")
        return Losses(terms={phase: total}, weight=torch.tensor(float(len(batch))))


def test_phases_that_nearly_cancel_out_are_good(make_trainer: MakeTrainer) -> None:
    warnings: list[str] = []
    guard = Guard(GuardConfig(window=2), warn=warnings.append, last_good=lambda before: None)
    make_trainer(Pair(World()), guard=guard, rate=1e-3).fit(World().batches)
    assert warnings == []


def test_of_a_step_whose_second_phase_is_bad_only_that_is_left_out(make_trainer: MakeTrainer) -> None:
    world = World(bad_steps={3})
    warnings: list[str] = []
    guard = Guard(GuardConfig(), warn=warnings.append, last_good=lambda before: None)
    task = Pair(world)
    seen = [numbers(task)]

    class Look(Hook):
        name = "look"

        def after_step(self, trainer: Trainer, report: StepReport) -> None:
            seen.append(numbers(task))

    make_trainer(task, [Look()], guard=guard, rate=1e-3, steps=4).fit(world.batches)
    moved = [[not torch.equal(a[n], b[n]) for n in a] for a, b in itertools.pairwise(seen)]
    assert list(seen[0]) == ["critic.weight", "critic.bias", "generator.weight", "generator.bias"]
    assert moved == [[True] * 4, [True] * 4, [True, True, False, False], [True] * 4]
    assert len(warnings) == 1
    assert warnings[0].startswith("the generator phase of step 3 is skipped: the loss is nan")


def overflowing(
    make_trainer: MakeTrainer, folder: Path, world: World, *, steps: int, stop_at: int | None = None
) -> tuple[Trainer, Notes, list[str]]:
    """Train in half precision with a gradient scaler, resuming from `folder`; 2 failures roll back."""
    warnings: list[str] = []
    saver = Saver(folder, SaverConfig(every_steps=10), warn=warnings.append)
    guard = Guard(GuardConfig(failures=2), warn=warnings.append, last_good=saver.last_good)
    notes = Notes(stop_at=stop_at)
    task = Fragile(world)
    trainer = make_trainer(task, [notes, saver], guard=guard, rate=0.01, steps=steps, precision="fp16")
    newest, _ = newest_checkpoint(folder)
    if newest is not None:
        trainer.load(newest)
    try:
        trainer.fit(world.batches)
    finally:
        saver.close()
    return trainer, notes, warnings


def test_with_a_scaler_some_overflows_are_usual(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """Half of them lie before, half after a step that did not overflow: never too many in a row."""
    bad = {*range(1, 21), *range(22, 42)}
    world = World(bad_steps=bad, fault="gradient")
    trainer, notes, warnings = overflowing(make_trainer, tmp_path, world, steps=50)
    assert [r.progress.step for r in notes.reports if not math.isfinite(r.gradient_norm)] == sorted(bad)
    assert warnings == []
    assert (trainer.guard.skipped_steps, trainer.guard.rollbacks) == (0, 0)
    assert all(value.isfinite().all() for value in numbers(trainer.task).values())


def test_the_scale_goes_on_where_it_was(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    bad = set(range(3, 9))
    unstopped, _, _ = overflowing(
        make_trainer, tmp_path / "unstopped", World(bad_steps=bad, fault="gradient"), steps=12
    )
    world = World(bad_steps=bad, fault="gradient")
    for stop in (5, 7, None):
        stopped, _, _ = overflowing(make_trainer, tmp_path / "stopped", world, steps=12, stop_at=stop)
    assert stopped.deployment.state() == unstopped.deployment.state()
    scaler = stopped.deployment.state()["scaler"]
    assert isinstance(scaler, dict)
    assert scaler["scale"] <= 2.0**10, "halved six times at least"
    assert stopped.guard.state() == unstopped.guard.state()
    require_equal(numbers(stopped.task), numbers(unstopped.task))


def test_overflows_without_end_stop_the_run(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """20 are normal, the next two are skipped, then it rolls back; it does not continue for ever."""
    world = World(bad_steps=set(range(6, 10**4)), fault="gradient")
    with pytest.raises(BoxcrewError, match="2 steps in a row failed, after 3 rollbacks"):
        overflowing(make_trainer, tmp_path, world, steps=10**4)
    assert 10**6 - world.times < 4 * 25, "steps that overflowed"


def guarded(
    make_trainer: MakeTrainer,
    folder: Path,
    world: World,
    *,
    stop_at: int | None = None,
    keep: int = 1,
    messages: list[str] | None = None,
) -> tuple[Trainer, Notes, list[str]]:
    """Train 12 steps, saved every 4, resuming from `folder`; 2 failures roll back."""
    warnings: list[str] = [] if messages is None else messages
    saver = Saver(folder, SaverConfig(every_steps=4, keep=keep), warn=warnings.append)
    guard = Guard(GuardConfig(failures=2), warn=warnings.append, last_good=saver.last_good)
    notes = Notes(stop_at=stop_at)
    task = Fragile(world)
    trainer = make_trainer(task, [Ema(task, decay=0.5), notes, saver], guard=guard, rate=0.05, steps=12)
    newest, _ = newest_checkpoint(folder)
    if newest is not None:
        trainer.load(newest)
    try:
        trainer.fit(world.batches)
    finally:
        saver.close()
    return trainer, notes, warnings


def test_after_some_bad_steps_in_a_row_it_goes_back_and_slower(
    make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    world = World(bad_steps={6, 7}, times=2)
    trainer, notes, warnings = guarded(make_trainer, tmp_path, world)
    assert [r.progress.step for r in notes.reports] == [*range(1, 8), *range(5, 13)]
    assert [r.rate for r in notes.reports] == [0.05] * 7 + [0.025] * 8
    assert (trainer.guard.skipped_steps, trainer.guard.rollbacks) == (2, 1)
    assert any("back to step 4" in text for text in warnings)
    assert trainer.elapsed >= sum(r.seconds for r in notes.reports), "time does not go back"
    # The same from step 4 on as a run that had half the rate there.
    whole, _, _ = guarded(make_trainer, tmp_path / "other", World())
    assert not torch.equal(
        whole.task.get_parameter("body.0.weight"), trainer.task.get_parameter("body.0.weight")
    )


def test_what_was_saved_after_the_place_gone_back_to_is_removed(
    make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    world = World(bad_steps={6, 7}, times=2)
    guarded(make_trainer, tmp_path, world, stop_at=6)
    assert [p.name for p in list_checkpoints(tmp_path)] == ["00000004", "00000006"]
    guarded(make_trainer, tmp_path, world, stop_at=7)
    assert [p.name for p in list_checkpoints(tmp_path)] == ["00000004", "00000007"]
    guarded(make_trainer, tmp_path, world, stop_at=5)
    assert [p.name for p in list_checkpoints(tmp_path)] == ["00000004", "00000005"]


@pytest.mark.parametrize("stops", [(5,), (6,), (7,), (3, 6, 7), (6, 7, 5, 6, 9), (8,)])
def test_stopped_anywhere_it_goes_back_to_the_same_place(
    make_trainer: MakeTrainer, tmp_path: Path, stops: tuple[int, ...]
) -> None:
    unstopped, _, _ = guarded(make_trainer, tmp_path / "unstopped", World(bad_steps={6, 7}, times=2))
    world = World(bad_steps={6, 7}, times=2)
    for stop in stops:
        trainer, _, _ = guarded(make_trainer, tmp_path / "stopped", world, stop_at=stop)
        assert (trainer.step, trainer.interrupted) == (stop, True)
    stopped, _, _ = guarded(make_trainer, tmp_path / "stopped", world)
    assert stopped.guard.state() == unstopped.guard.state()
    first, second = (newest_checkpoint(tmp_path / name)[0] for name in ("unstopped", "stopped"))
    assert first is not None
    assert second is not None
    assert first.step == second.step == 12
    require_equal(dict(first.tensors), dict(second.tensors))


def test_three_times_then_it_gives_up(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    world = World(bad_steps={6, 7})
    with pytest.raises(BoxcrewError, match="step 7: 2 steps in a row failed, after 3 rollbacks") as error:
        guarded(make_trainer, tmp_path, world)
    assert error.value.exit_code == 1
    assert world.times == 10**6 - 8
    assert [p.name for p in list_checkpoints(tmp_path)] == ["00000004"], "the last good one stays"


class Poisoned(World):
    """The first bad step makes all later ones bad."""

    def goes_wrong(self, batch: Batch) -> bool:
        wrong = super().goes_wrong(batch)
        if wrong:
            self.bad_steps = set(range(1, 13))
        return wrong


def places_gone_back_to(warnings: list[str]) -> list[int]:
    return [int(text.rpartition(" ")[2]) for text in warnings if ": rolling back to step" in text]


@pytest.mark.parametrize(("keep", "places"), [(1, [8, 8, 8]), (2, [8, 4, 4]), (3, [8, 4, 0])], ids=str)
def test_where_it_fails_again_it_goes_back_further(
    make_trainer: MakeTrainer, tmp_path: Path, keep: int, places: list[int]
) -> None:
    """It rolls back as far as there are checkpoints: the newest may be bad already."""
    warnings: list[str] = []
    with pytest.raises(BoxcrewError, match="after 3 rollbacks"):
        guarded(make_trainer, tmp_path, Poisoned(bad_steps={9}), keep=keep, messages=warnings)
    assert places_gone_back_to(warnings) == places


class Fading(World):
    """Steps that go wrong the given number of times."""

    def __init__(self, times: dict[int, int]) -> None:
        super().__init__()
        self._times = times

    def batches(self, step: int) -> Iterator[Batch]:
        while True:
            left = self._times.get(step + 1, 0)
            self._times[step + 1] = left - 1
            self.bad_steps = {step + 1} if left > 0 else set()
            yield next(super().batches(step))
            step += 1


def test_a_new_checkpoint_is_tried_before_an_older_one(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """The first bad place is passed at the second try; the other at the third."""
    world = Fading({6: 1, 7: 1, 10: 2, 11: 2})
    trainer, notes, warnings = guarded(make_trainer, tmp_path, world, keep=2)
    assert places_gone_back_to(warnings) == [4, 8, 4], "8 was new; then it failed again"
    assert notes.reports[-1].rate == 0.05 / 8
    assert trainer.step == 12


@pytest.mark.parametrize("stops", [(5,), (9,), (10,), (9, 10, 9, 10, 5)], ids=str)
def test_stopped_anywhere_it_goes_back_as_far(
    make_trainer: MakeTrainer, tmp_path: Path, stops: tuple[int, ...]
) -> None:
    """Twice, to 8 and then to 4, whatever else was saved between."""
    unstopped, _, _ = guarded(make_trainer, tmp_path / "unstopped", World(bad_steps={9, 10}, times=4), keep=2)
    assert unstopped.guard.rollbacks == 2
    world = World(bad_steps={9, 10}, times=4)
    for stop in stops:
        guarded(make_trainer, tmp_path / "stopped", world, stop_at=stop, keep=2)
    stopped, _, _ = guarded(make_trainer, tmp_path / "stopped", world, keep=2)
    assert stopped.guard.state() == unstopped.guard.state()
    first, second = (newest_checkpoint(tmp_path / name)[0] for name in ("unstopped", "stopped"))
    assert first is not None
    assert second is not None
    require_equal(dict(first.tensors), dict(second.tensors))


def test_before_the_first_interval_it_goes_back_to_the_start(
    make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    _, notes, _ = guarded(make_trainer, tmp_path, World(bad_steps={2, 3}, times=2))
    assert [r.progress.step for r in notes.reports] == [1, 2, 3, *range(1, 13)]


def test_a_bad_last_step_counts_as_well(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    trainer, notes, _ = guarded(make_trainer, tmp_path, World(bad_steps={11, 12}, times=2))
    assert [r.progress.step for r in notes.reports] == [*range(1, 13), *range(9, 13)]
    assert trainer.step == 12


def test_no_checkpoint_is_made_of_a_bad_step(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    guarded(make_trainer, tmp_path, World(bad_steps={4, 8}), stop_at=9)
    steps = [int(p.name) for p in list_checkpoints(tmp_path)]
    assert steps == [9], "4 and 8 were bad: 5 and 9 instead"
