"""Run directories without the training."""

from __future__ import annotations

from pathlib import Path

import torch
import yaml

from boxcrew.core.config import Tree
from boxcrew.tasks.base import TASKS
from boxcrew.tasks.data import OpenOptions
from boxcrew.train.config import RunConfig
from boxcrew.train.output.outcome import save_task


def untrained_run(folder: Path, settings: Tree) -> Path:
    """As after a run with these settings, as far as `val` and `predict` look at it; its network has learned
    nothing.
    """
    config = RunConfig.of({"steps": 1, **settings})
    task_data = TASKS.get(config.task.name).open(config.task, OpenOptions(data=config.data, seed=config.seed))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        task = task_data.task()
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(config.tree()), encoding="utf-8")
    weights = folder / "weights" / "best.safetensors"
    save_task(weights, task, config.task, task_data.facts, step=1, seed=config.seed)
    return folder
