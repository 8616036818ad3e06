"""The contract of every kind of task. Tests call these checks for each name of the registry."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

import torch

from boxcrew.core.types import Batch
from boxcrew.data.loading.workers import Workers
from boxcrew.nets.layers import eval_mode
from boxcrew.tasks.base import TASKS, Task, freeze_other_phases
from boxcrew.tasks.cost.estimate import trace_workload
from boxcrew.tasks.data import EvalOptions, FactsT, LoaderOptions, TaskData, TrainData

BATCH = 6


def check_settings(task_data: TaskData) -> None:
    """Check that settings survive being written, name their task and have metrics."""
    config = task_data.config
    assert TASKS.get(config.name) is type(task_data)
    assert type(task_data.facts) is task_data.facts_class
    assert written(task_data.facts) == task_data.facts
    assert type(config).of(json.loads(json.dumps(config.tree()))) == config
    assert config.metrics
    assert set(config.hoisted) <= set(type(config).model_fields)


def written(facts: FactsT) -> FactsT:
    """Return facts as they are after writing to and reading from a file."""
    return facts.from_json(json.loads(json.dumps(facts.to_json())))


def check_build(task_data: TaskData) -> Task:
    """Check that settings, facts and the seed determine the network; return its task."""
    tasks = []
    for facts in (task_data.facts, written(task_data.facts)):
        torch.manual_seed(3)
        tasks.append(type(task_data).build(task_data.config, facts))
    first, second = (task.state_dict() for task in tasks)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    return tasks[0]


def check_stream(task_data: TrainData) -> Batch:
    """Check that a step's samples do not depend on start, workers and shares; return the first batch."""
    options = LoaderOptions(batch=BATCH, seed=5)
    loader = task_data.loader(options)
    steps = list(loader.batches(num_steps=3))
    _require_same(next(loader.batches(2)), steps[2])
    by_workers = task_data.loader(replace(options, workers=Workers(num=2)))
    _require_same(next(by_workers.batches(1)), steps[1])
    for positions in ([0, 2], [1, 3, 4, 5]):
        share = next(task_data.loader(replace(options, positions=positions)).batches(1))
        _require_same(share, steps[1].select(positions))
    another_seed = next(task_data.loader(replace(options, seed=6)).batches())
    assert another_seed.keys != steps[0].keys
    draws = [draw for batch in (*steps, another_seed) for draw in batch.draws.tolist()]
    assert len(set(draws)) == len(draws), "two samples share a draw"
    return steps[0]


def _require_same(first: Batch, second: Batch) -> None:
    assert first.keys == second.keys
    assert torch.equal(first.inputs, second.inputs)
    assert torch.equal(first.draws, second.draws)
    assert first.targets.keys() == second.targets.keys()
    assert first.extra.keys() == second.extra.keys()
    for name, left in {**first.targets, **first.extra}.items():
        right = {**second.targets, **second.extra}[name]
        if left.ndim > 1:  # objects of an image are padded to the most that any image of the batch has
            width = min(left.shape[1], right.shape[1])
            left, right = left[:, :width], right[:, :width]  # noqa: PLW2901
        assert torch.equal(left, right), name


def check_losses(task: Task, batch: Batch) -> None:
    """Check in every phase that losses of two parts add up, and that only its own parameters get gradients.

    The task is in evaluation mode, where no sample depends on another.
    """
    names = [name for name, _ in task.named_parameters()]
    for phase in task.phases:
        with eval_mode(task), freeze_other_phases(task, phase):
            whole = task(batch, phase)
            parts = [task(part, phase) for part in batch.split([2, len(batch) - 2])]
            added = parts[0] + parts[1]
            assert whole.terms.keys() == added.terms.keys()
            for name, value in whole.terms.items():
                torch.testing.assert_close(value, added.terms[name], rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(whole.weight, added.weight)
            task.zero_grad(set_to_none=True)
            whole.total().backward()
        learning = {name for name, p in task.named_parameters() if p.grad is not None}
        assert learning == {name for name in names if task.learns_in(phase, name)} & learning
        assert learning, phase
    task.zero_grad(set_to_none=True)


def check_workload(task: Task, make_batch: Callable[[int], Batch]) -> None:
    """Check that a step's workload can be computed without data, and grows with its samples."""
    workload = trace_workload(task, make_batch, slots=1, averages=False)
    assert workload.without_recompute.operations > 0
    assert workload.without_recompute.peak.at(64) > workload.without_recompute.peak.at(2)


def check_evaluation(task_data: TaskData, task: Task) -> None:
    """Check that an evaluation has just the metrics that the data names, all finite, and can be shown."""
    progress: list[int] = []
    options = EvalOptions(batch=4, workers=Workers(), progress=progress.append)
    with eval_mode(task):
        evaluation = task_data.evaluate(task, lambda inputs: inputs, options)
    assert next(iter(task_data.config.metrics)) in task_data.metrics, "the default metric is not measured"
    assert task_data.metrics == {
        name: higher for name, higher in task_data.config.metrics.items() if name in evaluation.numbers
    }
    assert all(math.isfinite(value) for value in evaluation.numbers.values())
    assert progress == sorted(progress)
    assert evaluation.sentence()
    report = json.loads(json.dumps(evaluation.to_json()))
    assert {"numbers", "classes", "milliseconds"} <= report.keys()
    table = task_data.scores(report)
    assert all(len(row) == len(table.columns) for row in table.rows)
    for sheet in task_data.render_predictions(evaluation, 3).values():
        assert all(image.ndim == 3 and image.shape[2] == 3 for image in sheet)


def check_report(task_data: TaskData) -> None:
    report = json.loads(json.dumps(task_data.report()))
    assert report["classes"] == list(task_data.facts.classes)
    assert task_data.headline().startswith(f"({report['format']}): ")
