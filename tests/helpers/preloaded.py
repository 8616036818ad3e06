"""Imports what takes seconds to import, for a process that is forked often."""

import gc
import os
from importlib import import_module

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # as the command does before it imports torch

for _name in (
    "boxcrew.api",
    "boxcrew.cli.train",
    "boxcrew.cli.val",
    "boxcrew.data.embedded.shelf.scene",
    "boxcrew.deploy.processes.launch",
    "boxcrew.detectors.ssdlite",
    "faster_coco_eval",
    "numpy.ma",
    "PIL.JpegImagePlugin",
    "PIL.PngImagePlugin",
    "pytest",
    "tests.helpers.learning",
    "tests.helpers.made_examples",
    "tests.helpers.runs",
    "timm",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.export",
    "torch.utils.flop_counter",
):
    import_module(_name)

gc.collect()
gc.freeze()  # a child that collects garbage would copy all these pages
