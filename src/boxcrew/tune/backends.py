"""The backend where the trainings of a study are done: here, machines that join, or a cluster of Ray."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from boxcrew.core.ray_cluster import cluster, require_ray
from boxcrew.train.output.screen import Screen
from boxcrew.tune.jobs import JOBS, JOINED, JoinedBackend
from boxcrew.tune.ledger import Ledger
from boxcrew.tune.record import StudyRecord
from boxcrew.tune.worker import OwnProcesses, TrainingBackend


@contextmanager
def training_backend(study: StudyRecord, folder: Path, screen: Screen) -> Iterator[TrainingBackend]:
    """Yield where the trainings are done, while the study runs."""
    if study.on == "machine":
        yield OwnProcesses()
        return
    if study.on == "join":
        screen.info(f"to take part, on any machine that sees it: boxcrew tune join study={folder}")
        yield JoinedBackend(folder)
    else:
        with _joined_by_ray(study, folder, screen) as backend:
            yield backend
    if Ledger.read(folder).is_finished:
        for name in (JOBS, JOINED):
            shutil.rmtree(folder / name, ignore_errors=True)


@contextmanager
def _joined_by_ray(study: StudyRecord, folder: Path, screen: Screen) -> Iterator[JoinedBackend]:
    """Let machines of the cluster join, with one process for each training at once."""
    require_ray("train,tune,ray")
    from boxcrew.deploy.processes.on_ray.slots import nodes, resources_of_each
    from boxcrew.deploy.processes.on_ray.worker_pool import WorkerPool

    with cluster(log_to_driver=False, logging_level=logging.ERROR):
        machines, base = nodes(), study.base_config
        gpu = any(machine.get("GPU") for machine in machines) and not base.device.startswith("cpu")
        resources = resources_of_each(machines, study.workers, gpu=gpu)
        if isinstance(base.deploy.threads, int):  # as many as a training has anywhere
            resources["CPU"] = min(resources["CPU"], float(base.deploy.threads))
        words = ("tune", "join", f"study={folder}", "workers=1")
        pool = WorkerPool(words, study.workers, resources, folder=folder, info=screen.info)
        try:
            yield JoinedBackend(folder, require_sound=pool.require_sound)
        finally:
            pool.close()
