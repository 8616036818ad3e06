"""Training on a few images until they are known by heart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import numpy as np
import torch
from torch import nn

from boxcrew.core.types import Batch
from boxcrew.data.config import DataConfig
from boxcrew.data.detection.formats.shelf import ShelfSource
from boxcrew.data.detection.records import Records
from boxcrew.data.detection.source import open_source
from boxcrew.data.loading.workers import Workers
from boxcrew.data.transforms.pipeline import TransformsConfig
from boxcrew.detectors import DetectorConfig
from boxcrew.tasks.base import Task
from boxcrew.tasks.data import EvalOptions, LoaderOptions, OpenOptions, SolveOptions
from boxcrew.tasks.detection import DetectionConfig, DetectionData
from boxcrew.tasks.detection_inputs import stored_regions

STILL = TransformsConfig(expand=1.0, crop=False, flip=0.0, color=0.0)
OPTIONS = EvalOptions(batch=8, workers=Workers())
FIRST = {"train": 100, "val": 1}  # images of the embedded set to choose from
MIN_SIDE = 35  # pixels of the original: smaller objects need more steps


def ap50_by_heart(detector: DetectorConfig, *, steps: int, rate: float = 1e-2) -> float:
    """Train on 16 images of `shelf` from scratch, all of them in every step, and return AP50 on the same."""
    with mock.patch.object(ShelfSource, "num_images", FIRST):
        shelf = DetectionData.of(DetectionConfig(detector=detector, transforms=STILL), open_source("shelf"))
    few = [
        record
        for record in shelf.train
        if np.diff(record.target.boxes.reshape(-1, 2, 2), axis=1).min() > MIN_SIDE
    ]
    few = few[:16]
    regions = stored_regions(
        detector, shelf.source, few, OpenOptions(data=DataConfig(path="shelf"), seed=0, workers=2)
    )
    shelf = replace(shelf, train=Records.of(few), val=Records.of(few), regions=regions)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        task = shelf.task().train()
    batch = next(iter(shelf.loader(LoaderOptions(batch=16, seed=0)).batches(num_steps=1)))
    optimizer = torch.optim.AdamW(task.parameters(), lr=rate, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for step in range(steps):
        losses = task(replace(batch, draws=batch.draws + 16 * step))  # other regions and anchors in each step
        optimizer.zero_grad()
        torch.autograd.backward(losses.total() / losses.weight)
        torch.nn.utils.clip_grad_norm_(task.parameters(), 10)
        optimizer.step()
        schedule.step()
    settle(task, batch)
    for stage in detector.stages():
        if stage.kind == "solve":
            with torch.no_grad(), TemporaryDirectory() as folder:
                shelf.solve(task.eval(), stage.name, SolveOptions(**vars(OPTIONS), workspace=Path(folder)))
    return shelf.evaluate(task.eval(), lambda inputs: inputs, OPTIONS).numbers["AP50"]


def settle(task: Task, batch: Batch) -> None:
    """Let the averages of BatchNorms be those of the last weights: they are of the steps before else."""
    norms = [layer for layer in task.modules() if isinstance(layer, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        task(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
