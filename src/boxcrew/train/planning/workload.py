"""The workload of a run, found without training: bytes and operations of its task, seconds of its inputs."""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn

from boxcrew.core.cache import cache_folder, read_cached, write_cached
from boxcrew.core.errors import DataError
from boxcrew.core.version import VERSION
from boxcrew.core.workload import InputCost, Workload
from boxcrew.tasks.base import Task
from boxcrew.tasks.cost.estimate import VERSION as ESTIMATE_VERSION
from boxcrew.tasks.cost.estimate import BatchFactory, trace_workload
from boxcrew.tasks.data import LoaderOptions, TaskData, TrainData
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.hooks.freeze import Freeze
from boxcrew.train.loop.optim import OptimConfig, build_optimizer

NUM_READ = 32  # samples that are timed
LEAST_BATCH = 8


def measure_workload(
    config: RunConfig, task_data: TaskData, task: Task, *, recompute: bool = False
) -> Workload:
    """Return the workload of a step at its most expensive: all layers that are ever trained are, and samples
    are the largest of the data set.

    `recompute`: also with recomputed activations, which takes longer.
    """
    workload = _cached(
        _key(config, task_data, task, recompute=recompute),
        lambda: estimate_workload(config, task, task_data.largest_batch, recompute=recompute),
    )
    return workload.model_copy(update={"inputs": measure_inputs(config, task_data)})


def estimate_workload(
    config: RunConfig, task: Task, examples: BatchFactory, *, recompute: bool = False
) -> Workload:
    """Return the workload without measuring inputs, from `examples` of a batch instead of the data set."""
    task = copy.deepcopy(task)
    freeze_for(config, task).set_learning(task, fraction=1.0)
    return trace_workload(
        task,
        examples,
        slots=num_slots(config.optim),
        averages=bool(config.optim.ema),
        recompute=recompute,
    )


def _key(config: RunConfig, task_data: TaskData, task: Task, *, recompute: bool) -> str:
    """Return a hash of everything that a workload depends on."""
    tree = config.tree()
    known = {name: tree[name] for name in ("optim", "trainable", "unfreeze")}
    known |= {"task": config.task.tree(), "batch_norm": tree["deploy"]["batch_norm"]}
    known |= {"facts": task_data.facts.to_json(), "costs": task_data.cost_key(), "recompute": recompute}
    known |= {
        "network": str(task),
        "versions": (VERSION, ESTIMATE_VERSION, torch.__version__, version("timm")),
    }
    return hashlib.blake2b(json.dumps(known, sort_keys=True).encode(), digest_size=16).hexdigest()


def _cached(key: str, account: Callable[[], Workload], folder: Path | None = None) -> Workload:
    """Return the workload that is stored under `key`; else compute and store it, which takes a second."""
    folder = folder or cache_folder("workload")
    file = folder / f"{key}.json" if folder is not None else None
    workload = read_cached(Workload, file)
    if workload is None:
        workload = account()
        write_cached(file, workload.tree())
    return workload


def freeze_for(config: RunConfig, task: Task, *, norms_learn: bool | None = None) -> Freeze:
    """Return the run's freezing of layers. `norms_learn` is that of a plan; by default of the settings."""
    if norms_learn is None:
        norms_learn = config.deploy.batch_norm != "frozen"
    return Freeze(task, trainable=config.trainable, unfreeze=config.unfreeze, norms_learn=norms_learn)


def num_slots(config: OptimConfig) -> int:
    """Return how many tensors the optimizer keeps per parameter, by a step with a single one."""
    layer = nn.Linear(3, 2, bias=False)
    optimizer = build_optimizer(layer, config, backbones=())
    layer.weight.grad = torch.ones_like(layer.weight)
    optimizer.step()
    state = optimizer.state[layer.weight].values()
    return sum(isinstance(slot, torch.Tensor) and slot.shape == layer.weight.shape for slot in state)


def measure_inputs(config: RunConfig, task_data: TrainData) -> InputCost | None:
    """Time the first samples of the run; None if they cannot be read, which the run will report."""
    num = min(NUM_READ, task_data.num_train)
    batch = min(max(LEAST_BATCH, config.batch), num)  # in large batches each sample takes less
    num -= num % batch  # full batches only
    kept = task_data.with_cache((num + batch) * task_data.max_sample_bytes)
    try:
        first, again = (_read(config, kept, num=num, batch=batch) for _ in range(2))
    except DataError:
        return None
    return InputCost(seconds=max(first, again), cached_seconds=again, image_bytes=task_data.sample_bytes)


def _read(config: RunConfig, task_data: TrainData, *, num: int, batch: int) -> float:
    """Return the core-seconds per sample."""
    steps = num // batch
    batches = task_data.loader(LoaderOptions(batch=batch, seed=config.seed)).batches(num_steps=1 + steps)
    next(batches)  # the first batch includes the start of the loader
    start = time.process_time()
    for _ in batches:
        pass
    return max(1e-7, (time.process_time() - start) / (steps * batch))
