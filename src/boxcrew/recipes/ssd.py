"""Recipes for SSD as in the paper (Liu et al., 2016)."""

from __future__ import annotations

from typing import Literal

from boxcrew.detectors.ssd import SsdConfig
from boxcrew.recipes import RECIPES
from boxcrew.tasks.detection import DetectionConfig
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.optim import OptimConfig
from boxcrew.train.loop.schedule import ScheduleConfig


@RECIPES.register("ssd300_vgg16")
def ssd300_vgg16() -> RunConfig:
    """SSD300 with VGG16, to the paper: 120 epochs of momentum at 1e-3, rate down tenfold twice

    boxcrew train ssd300_vgg16 data=PATH init=pretrained init.weights=vgg16.pth
    Needs a GPU: on 2 CPU cores about 1 image a second; 32 images are overfitted (AP50 1.0 on them) in 20
    minutes, with `python -m bench overfit`'s settings.
    """
    return _paper(300)


@RECIPES.register("ssd512_vgg16")
def ssd512_vgg16() -> RunConfig:
    """SSD512 with VGG16, to the paper: for small objects, at about three times SSD300's cost

    boxcrew train ssd512_vgg16 data=PATH init=pretrained init.weights=vgg16.pth
    Needs a GPU: on 2 CPU cores 0.3 images a second, or 0.4 with deploy.precision=bf16; of 4 images little is
    learned from scratch in 3 minutes (AP50 0.01 on them, with `python -m bench recipes`).
    """
    return _paper(512)


def _paper(size: Literal[300, 512]) -> RunConfig:
    """Return the settings of section 3.1: SGD, rate 1e-3, momentum 0.9, decay 5e-4, batch 32, and a tenth of
    the rate from 2/3 and again from 5/6 of the run.

    Gradient clipping is ours: VGG has no normalization, and from scratch the first steps can explode.
    """
    return RunConfig(
        epochs=120,
        batch=32,
        task=DetectionConfig(detector=SsdConfig(size=size)),
        optim=OptimConfig(name="momentum", rate=1e-3, weight_decay=5e-4, clip=10.0, reference_batch=32),
        schedule=ScheduleConfig(name="step", at=(0.67, 0.83), warmup=0.02),
    )
