"""What holds for every kind of task. Tests call these for each name of the registry."""

from __future__ import annotations

import json
import math

import torch

from boxcrew.core.types import Batch
from boxcrew.data.loading.workers import Workers
from boxcrew.nets.layers import eval_mode
from boxcrew.tasks.base import TASKS, DataFacts, EvalOptions, LoaderOptions, Task, TaskData
from boxcrew.tasks.cost.account import workload_of
from boxcrew.tasks.phases import learning_in

BATCH = 6


def check_settings(task_data: TaskData) -> None:
    """They survive being written, name the kind, and say what best can mean."""
    config = task_data.config
    assert TASKS.get(config.name) is type(task_data)
    assert type(config).of(json.loads(json.dumps(config.tree()))) == config
    assert config.metrics
    assert set(config.hoisted) <= set(type(config).model_fields)


def written(facts: DataFacts) -> DataFacts:
    """After a way through a file."""
    found: DataFacts = json.loads(json.dumps(dict(facts)))
    return found


def check_build(task_data: TaskData) -> Task:
    """Facts are all that a network needs besides settings, and the same seed gives the same one."""
    tasks = []
    for facts in (task_data.facts, written(task_data.facts)):
        torch.manual_seed(3)
        tasks.append(type(task_data).build(task_data.config, facts))
    first, second = (task.state_dict() for task in tasks)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    return tasks[0]


def check_stream(task_data: TaskData) -> Batch:
    """The same samples from any step on, by any number of workers, in whatever shares."""
    whole = task_data.loader(LoaderOptions(batch=BATCH, seed=5))
    steps = list(whole.batches(num_steps=3))
    _require_same(next(whole.batches(2)), steps[2])
    _require_same(
        next(task_data.loader(LoaderOptions(batch=BATCH, seed=5, workers=Workers(num=2))).batches(1)),
        steps[1],
    )
    for places in ([0, 2], [1, 3, 4, 5]):
        share = next(task_data.loader(LoaderOptions(batch=BATCH, seed=5, places=places)).batches(1))
        _require_same(share, steps[1].select(places))
    other = next(task_data.loader(LoaderOptions(batch=BATCH, seed=6)).batches())
    assert other.keys != steps[0].keys
    draws = [draw for batch in (*steps, other) for draw in batch.draws.tolist()]
    assert len(set(draws)) == len(draws), "two samples share a draw"
    return steps[0]


def _require_same(first: Batch, second: Batch) -> None:
    assert first.keys == second.keys
    assert torch.equal(first.inputs, second.inputs)
    assert torch.equal(first.draws, second.draws)
    assert first.targets.keys() == second.targets.keys()
    assert first.extra.keys() == second.extra.keys()
    for name, one in {**first.targets, **first.extra}.items():
        other = {**second.targets, **second.extra}[name]
        if one.ndim > 1:  # objects of an image are padded to as many as any other of the batch has
            width = min(one.shape[1], other.shape[1])
            one, other = one[:, :width], other[:, :width]  # noqa: PLW2901
        assert torch.equal(one, other), name


def check_losses(task: Task, batch: Batch) -> None:
    """In every phase: sums, so that those of two parts add up to those of the whole, and gradients of just
    the parameters that learn in it. In evaluation mode, where no sample depends on another.
    """
    names = [name for name, _ in task.named_parameters()]
    for phase in task.phases:
        with eval_mode(task), learning_in(task, phase):
            whole = task(batch, phase)
            parts = [task(part, phase) for part in batch.split([2, len(batch) - 2])]
            added = parts[0] + parts[1]
            assert whole.terms.keys() == added.terms.keys()
            for name, value in whole.terms.items():
                torch.testing.assert_close(value, added.terms[name], rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(whole.weight, added.weight)
            task.zero_grad(set_to_none=True)
            whole.total().backward()
        moved = {name for name, p in task.named_parameters() if p.grad is not None}
        assert moved == {name for name in names if task.learns_in(phase, name)} & moved
        assert moved, phase
    task.zero_grad(set_to_none=True)


def check_account(task_data: TaskData, task: Task) -> None:
    """What a step takes can be worked out, and grows with its samples."""
    found = workload_of(task, task_data.largest_batch, slots=1, averages=False)
    assert found.whole.operations > 0
    assert found.whole.peak.at(64) > found.whole.peak.at(2)


def check_examination(task_data: TaskData, task: Task) -> None:
    """It knows which metrics, of those that the settings can name, are measured here, and all are finite."""
    told: list[int] = []
    options = EvalOptions(batch=4, workers=Workers(), progress=told.append)
    with eval_mode(task):
        evaluation = task_data.evaluate(task, lambda inputs: inputs, options)
    assert next(iter(task_data.config.metrics)) in task_data.metrics, "what `auto` means"
    assert task_data.metrics == {
        name: higher for name, higher in task_data.config.metrics.items() if name in evaluation.numbers
    }
    assert all(math.isfinite(value) for value in evaluation.numbers.values())
    assert told == sorted(told)
    assert evaluation.sentence()
    report = json.loads(json.dumps(evaluation.to_json()))
    assert {"numbers", "classes", "milliseconds"} <= report.keys()
    table = task_data.scores(report)
    assert all(len(row) == len(table.columns) for row in table.rows)
    for sheet in task_data.draw_detections(evaluation, 3).values():
        assert all(image.ndim == 3 and image.shape[2] == 3 for image in sheet)


def check_report(task_data: TaskData) -> None:
    report = json.loads(json.dumps(task_data.report()))
    assert report["classes"] == list(task_data.facts["classes"])
    assert task_data.headline().startswith(f"({report['format']}): ")
