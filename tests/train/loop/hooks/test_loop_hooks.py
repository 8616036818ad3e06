"""Evaluation, checkpoints, summaries and status around a loop that trains next to nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.types import Batch, Detections, Losses, Target
from boxcrew.evaluate.detection.evaluator import DetectionEvaluation
from boxcrew.evaluate.detection.metrics import evaluate_detections
from boxcrew.evaluate.detection.types import EvaluatedImage
from boxcrew.evaluate.evaluation import Evaluation
from boxcrew.tasks.base import Task
from boxcrew.tasks.detection import DetectionConfig
from boxcrew.train.config import EvaluationConfig, RunConfig, SaverConfig
from boxcrew.train.loop.checkpoint import list_checkpoints
from boxcrew.train.loop.guard import Guard, GuardConfig
from boxcrew.train.loop.hooks import progress
from boxcrew.train.loop.hooks.evaluation import BestWeights, EvalRunner, EvaluationHook
from boxcrew.train.loop.hooks.pause import Pause
from boxcrew.train.loop.hooks.progress import ProgressReport
from boxcrew.train.loop.hooks.saver import Saver
from boxcrew.train.loop.hooks.stop import StopOnSignal
from boxcrew.train.loop.hooks.summaries import Summaries
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer
from boxcrew.train.output.best_effort import BestEffort
from boxcrew.train.output.metrics import MetricsWriter, read_rows
from boxcrew.train.output.screen import Screen
from boxcrew.train.output.tensorboard import TensorBoardLog

MakeTrainer = Callable[..., Trainer]


class Falling(Task):
    """Its loss is the number of the batch; at `bad_step` it is none."""

    def __init__(self, bad_step: int = -1) -> None:
        super().__init__()
        self.body = nn.Linear(1, 1)
        self.bad_step = bad_step

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase == "train"
        number = batch.inputs.sum()
        if int(number) == self.bad_step:
            number = number * float("nan")
        total = 0 * self.body(batch.inputs).sum() + number
        return Losses(terms={"class": total}, weight=torch.tensor(1.0))


def batches(step: int) -> Iterator[Batch]:
    while True:
        step += 1
        yield Batch(inputs=torch.tensor([[float(step)]]), targets={}, keys=(f"{step}.jpg",))


def evaluation(score: float | None, seconds: float = 0.1) -> Evaluation:
    """One object, found by a box that overlaps it as much as `score` says; if None, there is no object."""
    target = Target.of([[0, 0, 100, 100]], [0]) if score is not None else Target.of([], [])
    boxes = torch.tensor([[0.0, 0.0, 100.0, 100.0 * (score or 1.0)]])
    detections = Detections.of(boxes=boxes, scores=torch.ones(1), labels=torch.zeros(1, dtype=torch.long))
    evaluated = (EvaluatedImage(key="a", width=100, height=100, target=target, detections=detections),)
    return DetectionEvaluation(
        report=evaluate_detections(evaluated, ("cup",)),
        images=evaluated,
        milliseconds={},
        seconds=seconds,
        skipped=(),
    )


class Results:
    """The results of evaluations, as (step, is the best)."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, bool]] = []

    def __call__(self, trainer: Trainer, evaluation: Evaluation, is_best: bool) -> None:
        self.steps.append((trainer.step, is_best))


def nowhere(text: str) -> None: ...


def make_metrics(folder: Path) -> MetricsWriter:
    tensorboard = TensorBoardLog(None, from_step=0, warn=nowhere)
    return MetricsWriter(folder, tensorboard=tensorboard, files=BestEffort(nowhere), from_step=0)


class Scripted(EvalRunner):
    """Gives the scores in turn, then the last of them again."""

    def __init__(self, scores: Sequence[float | None], seconds: float = 0.1) -> None:
        self.scores, self.turns, self.seconds = scores, iter(scores), seconds

    def evaluate(self, trainer: Trainer, progress: Callable[[int], None]) -> tuple[Task, Evaluation]:
        return trainer.task, evaluation(next(self.turns, self.scores[-1]), self.seconds)


class Slow(Hook):
    """Makes every step take a second by the trainer's clock."""

    name = "slow"

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        trainer.elapsed += 1


class Unwritten(BestWeights):
    """Writes nothing; the weights of one step cannot be stored."""

    def __init__(self, failing_step: int = -1) -> None:
        self.failing_step = failing_step

    def save(self, task: Task, evaluation: Evaluation, *, step: int) -> bool:
        return step != self.failing_step


def evaluation_hook(
    folder: Path,
    results: Results,
    scores: Sequence[float | None],
    *,
    failing_step: int = -1,
    screen: Screen | None = None,
    **settings: Any,
) -> EvaluationHook:
    return EvaluationHook(
        RunConfig(epochs=1, evaluation=EvaluationConfig(**settings)),
        Scripted(scores),
        best_weights=Unwritten(failing_step),
        metrics=make_metrics(folder),
        screen=screen or Screen(),
        on_result=(results,),
    )


def test_a_run_is_evaluated_five_times_by_default(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    results = Results()
    make_trainer(Falling(), [evaluation_hook(tmp_path, results, [0.9])], steps=20).fit(batches)
    assert [step for step, _ in results.steps] == [4, 8, 12, 16, 20]


@pytest.mark.parametrize(("steps", "expected"), [(3, [1, 2, 3]), (1, [1]), (7, [2, 3, 5, 6, 7])])
def test_short_runs_are_evaluated_at_their_end_and_never_twice(
    make_trainer: MakeTrainer, tmp_path: Path, steps: int, expected: list[int]
) -> None:
    results = Results()
    make_trainer(Falling(), [evaluation_hook(tmp_path, results, [0.9])], steps=steps).fit(batches)
    assert [step for step, _ in results.steps] == expected


@pytest.mark.parametrize(("seconds", "expected"), [(0.3, [4, 8, 12, 16, 20]), (0.5, [4, 12, 20])])
def test_evaluations_leave_a_limited_time_to_the_training(
    make_trainer: MakeTrainer, tmp_path: Path, seconds: float, expected: list[int]
) -> None:
    results = Results()
    hook = evaluation_hook(tmp_path, results, [0.9])
    hook.eval_runner = Scripted([0.9], seconds)
    make_trainer(Falling(), [Slow(), hook], steps=10**9, seconds=19.9).fit(batches)
    assert [step for step, _ in results.steps] == expected


def test_every_so_many_epochs(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    results = Results()
    hook = evaluation_hook(tmp_path, results, [0.9], every_epochs=1.5)
    make_trainer(Falling(), [hook], steps=8, steps_per_epoch=2.0).fit(batches)
    assert [step for step, _ in results.steps] == [3, 6, 8]


def test_at_fractions_of_the_run_and_paused_after_one(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    results, saver = Results(), Saver(tmp_path / "checkpoints", SaverConfig(every_steps=5), warn=nowhere)
    hook = evaluation_hook(tmp_path, results, [0.9], at=(3 / 27, 9 / 27))
    trainer = make_trainer(Falling(), [hook, Pause(9), saver], steps=27)
    trainer.fit(batches)
    saver.close()
    assert [step for step, _ in results.steps] == [3, 9]
    assert (trainer.step, trainer.interrupted) == (9, True)
    assert list_checkpoints(tmp_path / "checkpoints")[-1].name == "00000009"
    again = make_trainer(Falling(), [Pause(9)], steps=27)
    again.step = 9
    again.fit(batches)  # it has no step to do
    assert again.step == 9


def test_on_a_tie_the_later_evaluation_is_the_best(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    results = Results()
    hook = evaluation_hook(tmp_path, results, [0.6, 0.8, 0.7, 0.8, 0.95])
    make_trainer(Falling(), [hook], steps=5).fit(batches)
    assert results.steps == [(1, True), (2, True), (3, False), (4, True), (5, True)]
    assert hook.best_step == 5
    rows = [row for row in read_rows(tmp_path / "metrics.jsonl") if "AP" in row]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[0]["AP/cup"] == rows[0]["AP"]


def test_patience_counts_evaluations_without_a_better_one(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    results = Results()
    hook = evaluation_hook(tmp_path, results, [0.6, 0.8, 0.8, 0.7], every_epochs=0.5, patience=2)
    trainer = make_trainer(Falling(), [hook], steps=50)
    trainer.fit(batches)
    assert trainer.step == 4
    assert trainer.stop_reason is not None
    assert "no better AP in 2 evaluations" in trainer.stop_reason


def test_of_a_run_at_zero_the_last_weights_are_the_best(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    hook = evaluation_hook(tmp_path, Results(), [0.1])
    make_trainer(Falling(), [hook], steps=4).fit(batches)
    assert (hook.state()["best"], hook.best_step) == (0.0, 4)


def test_where_nothing_can_be_measured_the_last_weights_are_the_best_and_patience_waits(
    make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    results, screen = Results(), Screen()
    screen.open_log(tmp_path / "train.log")
    hook = evaluation_hook(tmp_path, results, [None], screen=screen, every_epochs=0.5, patience=1)
    trainer = make_trainer(Falling(), [hook], steps=4)
    trainer.fit(batches)
    assert results.steps == [(step, True) for step in (1, 2, 3, 4)]
    assert (trainer.step, trainer.stop_reason, hook.best_step) == (4, None, 4)
    log = (tmp_path / "train.log").read_text()
    assert log.count("no boxes to measure, 1 image in 0.1s\n") == 4
    assert "best" not in log
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert not any(-1 in row.values() for row in rows)


def test_what_was_measured_is_better_than_what_was_not(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    results = Results()
    hook = evaluation_hook(tmp_path, results, [None, 0.6, None, 0.7])
    make_trainer(Falling(), [hook], steps=4).fit(batches)
    assert results.steps == [(1, True), (2, True), (3, False), (4, True)]


def test_a_resumed_evaluation_hook_remembers(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    results = Results()
    first = evaluation_hook(tmp_path, results, [0.8], every_epochs=0.5, patience=3)
    make_trainer(Falling(), [first], steps=2).fit(batches)
    second = evaluation_hook(tmp_path, results, [0.7], every_epochs=0.5, patience=3)
    second.load_state(json.loads(json.dumps(first.state())))
    trainer = make_trainer(Falling(), [second], steps=50)
    trainer.step = 2
    trainer.fit(batches)
    assert results.steps == [(1, True), (2, True), (3, False), (4, False)]
    assert (second.best_step, trainer.step) == (2, 4)


def test_every_metric_that_can_be_set_is_one_that_is_measured() -> None:
    assert set(DetectionConfig.metrics) <= set(evaluation(0.8).numbers)


class Interrupt(Hook):
    name = "interrupt"

    def __init__(self, step: int) -> None:
        self._step = step

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        if trainer.step == self._step:
            trainer.interrupt("a test")


def test_an_interrupted_run_saves_and_does_not_evaluate(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    results = Results()
    saver = Saver(tmp_path / "checkpoints", SaverConfig(every_epochs=100), warn=nowhere)
    hooks = [Interrupt(3), evaluation_hook(tmp_path, results, [0.9]), saver]
    trainer = make_trainer(Falling(), hooks, steps=100)
    trainer.fit(batches)
    assert trainer.interrupted
    assert results.steps == []
    assert [p.name for p in list_checkpoints(tmp_path / "checkpoints")] == ["00000000", "00000003"]


@pytest.mark.parametrize(
    ("settings", "steps", "expected"),
    [
        ({"every_epochs": 1}, 7, [4, 6, 7]),
        ({"every_epochs": 0.1}, 3, [1, 2, 3]),
        ({"every_steps": 3, "every_epochs": 50}, 8, [3, 6, 8]),
        ({"every_steps": 4, "every_epochs": 1.5}, 9, [6, 8, 9]),
    ],
)
def test_checkpoints_at_their_times(
    make_trainer: MakeTrainer, tmp_path: Path, settings: dict[str, Any], steps: int, expected: list[int]
) -> None:
    saver = Saver(tmp_path, SaverConfig(**settings, keep=3), warn=nowhere)
    make_trainer(Falling(), [saver], steps=steps, steps_per_epoch=2.0).fit(batches)
    assert [int(p.name) for p in list_checkpoints(tmp_path)][-len(expected) :] == expected


def test_summaries_are_means_and_go_on_over_a_stop(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    metrics = make_metrics(tmp_path)
    first = Summaries(metrics, every_steps=4)
    make_trainer(Falling(), [Interrupt(6), first], steps=10).fit(batches)
    assert [row["step"] for row in read_rows(tmp_path / "metrics.jsonl")] == [4]
    second = Summaries(metrics, every_steps=4)
    second.load_state(json.loads(json.dumps(first.state())))
    trainer = make_trainer(Falling(), [second], steps=10)
    trainer.step = 6
    trainer.fit(batches)
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [(row["step"], row["loss"], row["loss/class"]) for row in rows] == [
        (4, 2.5, 2.5),
        (8, 6.5, 6.5),
        (10, 9.5, 9.5),
    ]
    assert second.num_images == 10
    assert all(row["rate"] == 0.1 and row["images_per_second"] > 0 for row in rows)


def test_summaries_leave_out_steps_that_failed(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """A line whose steps all failed has no loss, but it is there."""
    first = Summaries(make_metrics(tmp_path), every_steps=2)
    make_trainer(Falling(bad_step=2), [first], steps=4).fit(batches)
    second = Summaries(make_metrics(tmp_path / "all"), every_steps=1)
    (tmp_path / "all").mkdir()
    make_trainer(Falling(bad_step=1), [second], steps=2).fit(batches)
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [(row["step"], row["loss"], row["loss/class"]) for row in rows] == [(2, 1, 1), (4, 3.5, 3.5)]
    rows = read_rows(tmp_path / "all" / "metrics.jsonl")
    assert ["loss" in row for row in rows] == [False, True]
    assert all(row["images_per_second"] > 0 for row in rows)
    assert (first.num_images, second.num_images) == (4, 2)


class Turns(Task):
    """The critic loses the number of the batch in every step; the generator 10, in every third."""

    phases = ("critic", "generator")

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(1, 1)

    def phases_of(self, step: int) -> tuple[str, ...]:
        return self.phases if step % 3 == 2 else ("critic",)

    def forward(self, batch: Batch, phase: str = "critic") -> Losses:
        number = batch.inputs.sum() if phase == "critic" else torch.tensor(10.0)
        total = 0 * self.body(batch.inputs).sum() + number
        return Losses(terms={phase: total}, weight=torch.tensor(1.0))


def test_summaries_are_means_over_the_steps_that_have_a_term(
    make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    make_trainer(Turns(), [Summaries(make_metrics(tmp_path), every_steps=6)], steps=6).fit(batches)
    (row,) = read_rows(tmp_path / "metrics.jsonl")
    assert (row["loss/critic"], row["loss/generator"]) == (3.5, 10)
    assert row["loss"] == pytest.approx(3.5 + 20 / 6)


def test_lines_are_of_the_steps_that_have_a_term(
    make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", -1.0)
    screen = Screen()
    screen.open_log(tmp_path / "train.log")
    hook = ProgressReport(tmp_path, screen, BestEffort(nowhere))
    make_trainer(Turns(), [hook], steps=4).fit(batches)
    lines = (tmp_path / "train.log").read_text().splitlines()
    shown = [line.partition("(")[2].partition(")")[0] for line in lines]
    assert shown == [
        "critic 1.00",
        "critic 1.50",
        "critic 2.00 generator 10.00",
        "critic 2.50 generator 10.00",
    ]


def test_lines_that_the_disk_does_not_take_come_later(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    warnings: list[str] = []
    folder = tmp_path / "run"
    tensorboard = TensorBoardLog(None, from_step=0, warn=nowhere)
    metrics = MetricsWriter(folder, tensorboard=tensorboard, files=BestEffort(warnings.append), from_step=0)

    class Repair(Hook):
        name = "repair"

        def after_step(self, trainer: Trainer, report: StepReport) -> None:
            if trainer.step == 3:
                folder.mkdir()

    make_trainer(Falling(), [Repair(), Summaries(metrics, every_steps=1)], steps=4).fit(batches)
    assert [row["step"] for row in read_rows(folder / "metrics.jsonl")] == [1, 2, 3, 4]
    assert len(warnings) == 1


def test_best_is_what_could_be_stored(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    results = Results()
    hook = evaluation_hook(tmp_path, results, [0.6, 0.9, 0.8, 0.7, 0.7], failing_step=2)
    make_trainer(Falling(), [hook], steps=5).fit(batches)
    assert results.steps == [(1, True), (2, True), (3, True), (4, False), (5, False)]
    assert hook.best_step == 3


def test_a_rollback_keeps_the_best_that_was_stored(tmp_path: Path) -> None:
    hook = evaluation_hook(tmp_path, Results(), [0.9])
    early = {**hook.state(), "count": 1, "step": 2, "best": 0.5, "best_step": 2}
    hook.load_state(early)
    assert hook.state() == early
    hook.load_state({**early, "best": 0.8, "best_step": 6})
    hook.load_state(early)
    assert hook.state() == {**early, "best": 0.8, "best_step": 6}


def test_status_says_how_a_run_ended(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    def status() -> tuple[str, int]:
        content = json.loads((tmp_path / "status.json").read_text())
        return content["state"], content["step"]

    make_trainer(Falling(), [ProgressReport(tmp_path, Screen(), BestEffort(nowhere))], steps=2).fit(batches)
    assert status() == ("finished", 2)
    make_trainer(Falling(), [Interrupt(1), ProgressReport(tmp_path, Screen(), BestEffort(nowhere))]).fit(
        batches
    )
    assert status() == ("interrupted", 1)
    hook = ProgressReport(tmp_path, Screen(), BestEffort(nowhere))
    guard = Guard(GuardConfig(failures=1), warn=nowhere, last_good=lambda before: None)
    with pytest.raises(BoxcrewError, match="no checkpoint to roll back to"):
        make_trainer(Falling(bad_step=4), [hook], guard=guard).fit(batches)
    assert status()[0] == "running"
    hook.close()
    assert status() == ("failed", 4)


def test_in_another_thread_signals_are_left_alone(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(Falling(), [StopOnSignal(Screen())], steps=2)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            trainer.fit(batches)
        except ValueError as error:  # what signal.signal raises outside the main thread
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failed == []
    assert trainer.step == 2
