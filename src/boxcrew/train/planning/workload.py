"""What a run takes, found out without training: bytes and operations of its task, the cost of its inputs."""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn

from boxcrew.core.cache import cache_folder
from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.files import write_text
from boxcrew.core.version import VERSION
from boxcrew.core.workload import Inputs, Workload
from boxcrew.tasks.base import Task
from boxcrew.tasks.cost.estimate import VERSION as ACCOUNT
from boxcrew.tasks.cost.estimate import BatchFactory, workload_of
from boxcrew.tasks.data import LoaderOptions, TaskData
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.hooks.freeze import Freeze
from boxcrew.train.loop.optim import OptimConfig, build_optimizer

LOOKED_AT = 32  # samples
AT_ONCE = 8


def workload_for(config: RunConfig, task_data: TaskData, task: Task, *, recompute: bool = False) -> Workload:
    """Of the whole run: as it is when all has joined that is ever to learn, and for the largest samples there
    are. `recompute`: also with activations computed again, which takes longer to find out.
    """
    found = _kept(
        _key(config, task_data, task, recompute=recompute),
        lambda: account_for(config, task, task_data.largest_batch, recompute=recompute),
    )
    return found.model_copy(update={"inputs": measure_inputs(config, task_data)})


def account_for(
    config: RunConfig, task: Task, examples: BatchFactory, *, recompute: bool = False
) -> Workload:
    """The same without a look at the data."""
    task = copy.deepcopy(task)
    freeze_for(config, task).set_learning(task, fraction=1.0)
    return workload_of(
        task,
        examples,
        slots=num_slots(config.optim),
        averages=bool(config.optim.ema),
        recompute=recompute,
    )


def _key(config: RunConfig, task_data: TaskData, task: Task, *, recompute: bool) -> str:
    """Of everything that a workload depends on."""
    tree = config.tree()
    known = {name: tree[name] for name in ("optim", "trainable", "unfreeze")}
    known |= {"task": config.task.tree(), "batch_norm": tree["deploy"]["batch_norm"]}
    known |= {"facts": task_data.facts, "costs": task_data.cost_key(), "recompute": recompute}
    known |= {"network": str(task), "versions": (VERSION, ACCOUNT, torch.__version__, version("timm"))}
    return hashlib.blake2b(json.dumps(known, sort_keys=True).encode(), digest_size=16).hexdigest()


def _kept(key: str, account: Callable[[], Workload], folder: Path | None = None) -> Workload:
    """What was worked out before for the same, or is now: it takes a second."""
    folder = folder or cache_folder("workload")
    file = folder / f"{key}.json" if folder is not None else None
    with suppress(UsageError):
        if file is not None:
            return Workload.read(file, setting="workload")
    found = account()
    with suppress(OSError):
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, json.dumps(found.tree()))
    return found


def freeze_for(config: RunConfig, task: Task, *, norms_learn: bool | None = None) -> Freeze:
    """`norms_learn`: as a plan says; without one, as the settings do."""
    if norms_learn is None:
        norms_learn = config.deploy.batch_norm != "frozen"
    return Freeze(task, trainable=config.trainable, unfreeze=config.unfreeze, norms_learn=norms_learn)


def num_slots(config: OptimConfig) -> int:
    """Tensors that the optimizer keeps for each parameter: it is asked, with one."""
    layer = nn.Linear(3, 2, bias=False)
    optimizer = build_optimizer(layer, config, backbone_prefix=None)
    layer.weight.grad = torch.ones_like(layer.weight)
    optimizer.step()
    kept = optimizer.state[layer.weight].values()
    return sum(isinstance(one, torch.Tensor) and one.shape == layer.weight.shape for one in kept)


def measure_inputs(config: RunConfig, task_data: TaskData) -> Inputs | None:
    """Of the first samples of the run, in core-seconds; None where they cannot be read: a run says so."""
    num = min(LOOKED_AT, task_data.num_train)
    at_once = min(max(AT_ONCE, config.batch), num)  # of many at once each takes less
    num -= num % at_once  # whole batches
    kept = task_data.keeping((num + at_once) * task_data.most_read_bytes)
    try:
        first, again = (_read(config, kept, num=num, at_once=at_once) for _ in range(2))
    except DataError:
        return None
    return Inputs(seconds=max(first, again), kept_seconds=again, image_bytes=task_data.read_bytes)


def _read(config: RunConfig, task_data: TaskData, *, num: int, at_once: int) -> float:
    """Core-seconds a sample."""
    steps = num // at_once
    batches = task_data.loader(LoaderOptions(batch=at_once, seed=config.seed)).batches(num_steps=1 + steps)
    next(batches)  # only a first batch takes what it takes to begin
    begun = time.process_time()
    for _ in batches:
        pass
    return max(1e-7, (time.process_time() - begun) / (steps * at_once))
