"""What a run takes, found out without training: bytes and operations of its task, the cost of its inputs."""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn

from boxcrew.core.cache import cache_folder
from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.files import write_text
from boxcrew.core.version import VERSION
from boxcrew.core.workload import Inputs, Workload
from boxcrew.data.image_cache import ImageCache
from boxcrew.data.loader import TrainLoader
from boxcrew.data.source import ImageReader
from boxcrew.data.transforms.pipeline import train_pipeline
from boxcrew.detectors.base import DetectorNet
from boxcrew.tasks.account import VERSION as ACCOUNT
from boxcrew.tasks.account import workload_of
from boxcrew.tasks.detection import DetectionTask, largest_batch
from boxcrew.train.config import RunConfig
from boxcrew.train.data import RunData
from boxcrew.train.hooks.freeze import Freeze
from boxcrew.train.optim import OptimConfig, build_optimizer

LOOKED_AT = 32  # samples
AT_ONCE = 8


def workload_for(
    config: RunConfig, detector: DetectorNet, data: RunData, *, recompute: bool = False
) -> Workload:
    """Of the whole run: as it is when all has joined that is ever to learn, and for images with as many
    objects as any has. `recompute`: also with activations computed again, which takes longer to find out.
    """
    most = most_objects(data)
    inputs = measure_inputs(config, data, size=detector.config.size)
    found = _kept(
        _key(config, detector, most, recompute=recompute),
        lambda: account_for(config, detector, most, recompute=recompute),
    )
    return found.model_copy(update={"inputs": inputs})


def most_objects(data: RunData) -> int:
    """Of a training image."""
    return max(len(record.target) for record in data.train)


def account_for(
    config: RunConfig, detector: DetectorNet, most_objects: int, *, recompute: bool = False
) -> Workload:
    """The same without a look at images."""
    task = DetectionTask(copy.deepcopy(detector))
    freeze_for(config, task).set_learning(task, fraction=1.0)
    return workload_of(
        task,
        partial(largest_batch, size=detector.config.size, num_objects=most_objects),
        slots=num_slots(config.optim),
        averages=bool(config.optim.ema),
        recompute=recompute,
    )


def _key(config: RunConfig, detector: DetectorNet, most_objects: int, *, recompute: bool) -> str:
    """Of everything that a workload depends on."""
    tree = config.tree()
    known = {name: tree[name] for name in ("detector", "optim", "trainable", "unfreeze")}
    known |= {"batch_norm": tree["deploy"]["batch_norm"], "classes": len(detector.classes)}
    known |= {"most_objects": most_objects, "recompute": recompute, "network": str(detector)}
    known |= {"versions": (VERSION, ACCOUNT, torch.__version__, version("timm"))}
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


def freeze_for(config: RunConfig, task: DetectionTask, *, norms_learn: bool | None = None) -> Freeze:
    """`norms_learn`: as a plan says; without one, as the settings do."""
    if norms_learn is None:
        norms_learn = config.deploy.batch_norm != "frozen"
    return Freeze(task, trainable=config.trainable, unfreeze=config.unfreeze, norms_learn=norms_learn)


def num_slots(config: OptimConfig) -> int:
    """Tensors that the optimizer keeps for each parameter: it is asked, with one."""
    layer = nn.Linear(3, 2, bias=False)
    optimizer = build_optimizer(layer, config, backbone_prefix="none")
    layer.weight.grad = torch.ones_like(layer.weight)
    optimizer.step()
    kept = optimizer.state[layer.weight].values()
    return sum(isinstance(one, torch.Tensor) and one.shape == layer.weight.shape for one in kept)


def measure_inputs(config: RunConfig, data: RunData, *, size: int) -> Inputs | None:
    """Of the first samples of the run, in core-seconds; None where they cannot be read: a run says so."""
    records = data.train
    num = min(LOOKED_AT, len(records))
    num -= num % min(AT_ONCE, num)  # whole batches
    images = ImageCache(data.source, records, budget=num * 3 * max(r.width * r.height for r in records))
    try:
        first, again = (_read(config, data, images, size=size, num=num) for _ in range(2))
    except DataError:
        return None
    pixels = sum(record.width * record.height for record in records) / len(records)
    image_bytes = images.used_bytes // num or int(3 * pixels)
    return Inputs(seconds=max(first, again), kept_seconds=again, image_bytes=image_bytes)


def _read(config: RunConfig, data: RunData, images: ImageReader, *, size: int, num: int) -> float:
    """Core-seconds a sample."""
    at_once = min(AT_ONCE, num)
    pipeline = train_pipeline(config.transforms, size, size)
    loader = TrainLoader(images, data.train, pipeline, batch=at_once, seed=config.seed)
    steps = num // at_once
    begun = time.process_time()
    for _ in loader.batches(num_steps=steps):
        pass
    return max(1e-6, (time.process_time() - begun) / (steps * at_once))
