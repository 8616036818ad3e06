"""Networks of published widths, such as VGG16, with a sixteenth of their channels.

Some detectors take no small input. Everything else about them stays as it is: layers, their order and names,
maps, default boxes, losses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

from timm.models import vgg
from torch import nn

from boxcrew.detectors import DETECTORS, DetectorConfig, DetectorNet
from boxcrew.nets.layers import L2Norm
from boxcrew.tasks.detection import DetectionConfig
from boxcrew.train.config import RunConfig
from boxcrew.train.init import Scratch

UNIT, DIVISOR = 64, 16
LARGE = 128  # px: inputs from here on take seconds in a network of usual width
WIDE = {"resnet50"}  # backbones whose checkpoints have hundreds of megabytes
KINDS: dict[type[nn.Module], int] = {nn.Conv2d: 2, nn.Linear: 2, nn.BatchNorm2d: 1, L2Norm: 1}
"""Layers, with how many of their first arguments are widths."""


def _narrow(width: int) -> int:
    """Return a smaller number of channels. Heads have other numbers than multiples of 64, and stay."""
    return width if width % UNIT else width // DIVISOR


def _narrowed(kind: type[nn.Module], num_widths: int) -> Callable[..., None]:
    original = kind.__init__

    def build(self: nn.Module, *args: Any, **options: Any) -> None:
        if "groups" in options:
            options["groups"] = _narrow(options["groups"])
        original(self, *(_narrow(width) for width in args[:num_widths]), *args[num_widths:], **options)

    return build


@contextmanager
def _narrow_layers() -> Iterator[None]:
    with ExitStack() as patches:
        for kind, num_widths in KINDS.items():
            patches.enter_context(mock.patch.object(kind, "__init__", _narrowed(kind, num_widths)))
        yield


@contextmanager
def narrow_if_large(config: DetectorConfig) -> Iterator[None]:
    """Build detectors of this name with few channels, in this context, if their inputs are large."""
    with _narrow_detector(config) if config.size.sides[0] >= LARGE else nullcontext():
        yield


@contextmanager
def _narrow_detector(config: DetectorConfig) -> Iterator[None]:
    detector_class = DETECTORS.get(config.name)
    original = detector_class.__init__

    def build(self: DetectorNet, *args: Any) -> None:
        with _narrow_layers():
            original(self, *args)

    with mock.patch.object(detector_class, "__init__", build):
        yield


def narrowed(config: RunConfig) -> AbstractContextManager[None]:
    """Build detectors of large inputs with few channels, in this context, and those of wide backbones that no
    weights are loaded into.
    """
    if not isinstance(config.task, DetectionConfig):
        return nullcontext()
    detector = config.task.detector
    backbone = getattr(detector, "backbone", None)
    if backbone in WIDE and isinstance(config.init, Scratch):
        return _narrow_detector(detector)
    if backbone in vgg.cfgs:
        narrow = [_narrow(width) if isinstance(width, int) else width for width in vgg.cfgs[backbone]]
        return mock.patch.dict(vgg.cfgs, {backbone: narrow})
    return narrow_if_large(detector)
