"""One recipe under many plans, in one process: images per second of each, with real loaders and steps.

    python -m bench.planner_sweep RECIPE DATA BATCH[,BATCH] sweep FORMAT THREADS WORKERS BATCH …
    python -m bench.planner_sweep RECIPE DATA BATCH naive
    python -m bench.planner_sweep RECIPE DATA BATCH FORMAT THREADS WORKERS

prints JSON: a list of {format, threads, workers, batch, images_per_second}, of which the best and those
that are named are measured several times; or the images per second of one mode alone.
`naive` is what people begin with: contiguous, a thread for each core, 8 workers, the default allocator.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

if "naive" not in sys.argv:  # as in the command, before torch is imported
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")

from boxcrew.api import run_config
from boxcrew.data.loading.workers import Workers
from boxcrew.deploy import memory
from boxcrew.deploy.deployment import deploy
from boxcrew.hardware.probe import usable_cores
from boxcrew.plan.plan import Clone, Plan, Replica
from boxcrew.tasks.data import LoaderOptions, TaskData
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.optim import optimizer_of
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning.workload import freeze_for
from boxcrew.train.run.data import open_task

SECONDS, STEPS = 1.5, 2  # of each: at least
AGAIN = 2  # best ones of each batch that are measured again in turns
ROUNDS = 2
LONG = 1.0  # seconds: after a longer step, the second one is counted


def main(recipe: str, data: str, batches: str, *mode: str) -> None:
    config, loaded = _load(recipe, data)
    if mode[0] != "sweep":
        print(json.dumps(_measure(config, loaded, _only(int(batches), *mode))))
        return
    named = [_mode(f, int(t), int(w), int(b)) for f, t, w, b in zip(*[iter(mode[1:])] * 4, strict=True)]
    sizes = [int(size) for size in batches.split(",")]
    cores = int(usable_cores())
    modes = [
        _mode(*choice)
        for choice in itertools.product(
            ("channels_last", "contiguous"), range(1, cores + 1), range(cores + 1), sizes
        )
    ]
    speeds = [[_measure(config, loaded, each)] for each in modes]
    again = [i for i, each in enumerate(modes) if each in named]
    for size in sizes:
        same_batch = [i for i, each in enumerate(modes) if each["batch"] == size]
        again += sorted(same_batch, key=lambda i: -speeds[i][0])[:AGAIN]
    for _ in range(ROUNDS):
        for i in dict.fromkeys(again):
            speeds[i].append(_measure(config, loaded, modes[i]))
    medians = [statistics.median(values) for values in speeds]
    results = [each | {"images_per_second": speed} for each, speed in zip(modes, medians, strict=True)]
    print(json.dumps(results))


def _only(batch: int, memory_format: str, *numbers: str) -> dict[str, Any]:
    if memory_format != "naive":
        threads, workers = map(int, numbers)
        return _mode(memory_format, threads, workers, batch)
    memory.MALLOC_OPTIONS = ()
    return _mode("contiguous", int(usable_cores()), 8, batch)


def _mode(memory_format: str, threads: int, workers: int, batch: int) -> dict[str, Any]:
    return {"format": memory_format, "threads": threads, "workers": workers, "batch": batch}


def _load(recipe: str, data: str) -> tuple[RunConfig, TaskData]:
    config = run_config(recipe, {"data": data, "init": "scratch"})
    config, task_data, _ = open_task(config, Screen())
    return config, task_data


def _measure(config: RunConfig, task_data: TaskData, mode: dict[str, Any]) -> float:
    plan = Plan(
        replicas=(Replica(clones=(Clone(device="cpu", share=mode["batch"]),)),),
        parameter_device="cpu",
        optimizer_device="cpu",
        batch=mode["batch"],
        memory_format=mode["format"],
        threads=mode["threads"],
        loader_workers=mode["workers"],
    )
    task = task_data.task()
    freeze_for(config, task).set_learning(task, fraction=0.0)
    with deploy(plan) as deployment, closing(_batches(task_data, mode)) as batches:
        deployment.setup_module(task)
        optimizer = optimizer_of(task, config.optim)

        def step() -> None:
            deployment.gradients(task, next(batches), "train")
            deployment.update(optimizer, max_norm=config.optim.clip)

        start = time.perf_counter()
        step()
        if time.perf_counter() - start < LONG:
            step()
        start, steps = time.perf_counter(), 0
        while steps < STEPS or time.perf_counter() < start + SECONDS:
            step()
            steps += 1
        return steps * float(mode["batch"]) / (time.perf_counter() - start)


def _batches(task_data: TaskData, mode: dict[str, Any]) -> Generator[Any, None, None]:
    options = LoaderOptions(batch=mode["batch"], seed=0, workers=Workers(num=mode["workers"]))
    yield from task_data.with_cache(1 << 30).loader(options).batches()


if __name__ == "__main__":
    assert Path(sys.argv[2]).exists()
    main(*sys.argv[1:])
