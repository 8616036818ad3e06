"""The imports of a training, for the process that those of a study are forked from."""

from __future__ import annotations

import gc
from importlib import import_module

from boxcrew.data.detection.source import SOURCES
from boxcrew.data.examples.example_set import EXAMPLE_FORMATS
from boxcrew.deploy.deployment import STRATEGIES
from boxcrew.tasks.base import TASKS

for _registry in (TASKS, SOURCES, EXAMPLE_FORMATS, STRATEGIES):
    _registry.names()
for _name in ("boxcrew.tune.worker", "torch._dynamo", "torch.utils.flop_counter", "faster_coco_eval"):
    import_module(_name)

gc.collect()
gc.freeze()  # a child that collects garbage would copy all these pages
