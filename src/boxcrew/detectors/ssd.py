"""SSD with VGG16 as in the paper (Liu et al., 2016): SSD300 and SSD512."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from pydantic import field_validator
from torch import Tensor, nn

from boxcrew.core.input_size import InputSize
from boxcrew.detectors._base import DETECTORS, MissReason
from boxcrew.detectors._multibox import MultiBoxConfig, MultiBoxNet
from boxcrew.detectors._torchvision_ssd import is_torchvision_ssd300, ssd300_from_torchvision
from boxcrew.nets.anchors import Level, paper_shapes
from boxcrew.nets.backbones import IMAGENET_MEAN, IMAGENET_STD
from boxcrew.nets.layers import L2Norm, Normalize
from boxcrew.nets.weights import State


class SsdConfig(MultiBoxConfig):
    sizes: ClassVar[tuple[int, ...]] = (300, 512)
    takes_several_sizes = False

    name: Literal["ssd"] = "ssd"
    size: InputSize = InputSize((300,))
    """Side of the square input in pixels: 300 or 512, the paper's two."""
    scales: Literal["voc", "coco"] = "voc"
    """Sizes of the default boxes: the paper's for VOC or for COCO."""

    @field_validator("size", mode="after")
    @classmethod
    def _is_of_the_paper(cls, size: InputSize) -> InputSize:
        if size.sides[0] not in cls.sizes:
            raise ValueError("input should be 300 or 512")
        return size

    def coverage_changes(self, reason: MissReason) -> Iterator[Mapping[str, object]]:
        if reason != "long":
            yield {"scales": "coco"}


# Sides of the default boxes in pixels, one more than there are maps (section 3.1; 3.4 for COCO).
_SCALES = {
    (300, "voc"): (30, 60, 111, 162, 213, 264, 315),
    (300, "coco"): (21, 45, 99, 153, 207, 261, 315),
    (512, "voc"): (35.84, 76.8, 153.6, 230.4, 307.2, 384.0, 460.8, 537.6),
    (512, "coco"): (20.48, 51.2, 133.12, 215.04, 296.96, 378.88, 460.8, 542.72),
}
_MAPS = {300: (38, 19, 10, 5, 3, 1), 512: (64, 32, 16, 8, 4, 2, 1)}
_STEPS = {300: (8, 16, 32, 64, 100, 300), 512: (8, 16, 32, 64, 128, 256, 512)}
_RATIOS = {300: ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,)), 512: ((2,), *(((2, 3),) * 4), (2,), (2,))}
_CHANNELS = {300: (512, 1024, 512, 256, 256, 256), 512: (512, 1024, 512, 256, 256, 256, 256)}


@DETECTORS.register("ssd")
class Ssd(MultiBoxNet):
    """VGG16 with fc6 and fc7 as convolutions, extra layers, and heads on six (seven) maps."""

    config_class = SsdConfig
    config: SsdConfig

    def __init__(self, config: SsdConfig, classes: tuple[str, ...]) -> None:
        super().__init__(config, classes)
        self.normalize = Normalize(IMAGENET_MEAN, IMAGENET_STD)
        self.backbone = Vgg16()
        self.norm = L2Norm(512, scale=20.0)
        size = config.size.square
        self.extras = nn.ModuleList(_extra_layers(size))
        ratios, channels = _RATIOS[size], _CHANNELS[size]
        boxes = [2 + 2 * len(r) for r in ratios]
        self.class_heads = nn.ModuleList(
            nn.Conv2d(c, k * (1 + len(classes)), 3, padding=1) for c, k in zip(channels, boxes, strict=True)
        )
        self.box_heads = nn.ModuleList(
            nn.Conv2d(c, k * 4, 3, padding=1) for c, k in zip(channels, boxes, strict=True)
        )
        for layers in (self.extras, self.class_heads, self.box_heads):
            layers.apply(_xavier)
        self.set_levels({size: _levels(size, config.scales)})

    def features(self, images: Tensor) -> list[Tensor]:
        conv4_3, fc7 = self.backbone(images)
        maps = [self.norm(conv4_3), fc7]
        for layer in self.extras:
            maps.append(layer(maps[-1]))
        return maps

    def backbone_prefix(self) -> str:
        return "backbone."

    def expected_normalization(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return IMAGENET_MEAN, IMAGENET_STD

    def convert_foreign(self, state: State) -> State:
        return ssd300_from_torchvision(state) if is_torchvision_ssd300(state) else state


class Vgg16(nn.Module):
    """VGG16's convolutions up to conv4_3, then to fc7.

    The fully connected layers are convolutions here; the fifth pooling keeps the size of its map, and fc6 is
    dilated so that its receptive field stays the same.
    """

    def __init__(self) -> None:
        super().__init__()
        widths = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512)
        self.to_conv4_3 = nn.Sequential(*_vgg_layers(3, widths))
        self.to_fc7 = nn.Sequential(
            *_vgg_layers(512, (0, 512, 512, 512)),
            nn.MaxPool2d(3, stride=1, padding=1),
            nn.Conv2d(512, 1024, 3, padding=6, dilation=6),
            nn.ReLU(inplace=True),
            nn.Conv2d(1024, 1024, 1),
            nn.ReLU(inplace=True),
        )
        # VGG has no normalization layers: from scratch it needs He's initialization to keep the signal.
        self.apply(_he)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        conv4_3 = self.to_conv4_3(images)
        return conv4_3, self.to_fc7(conv4_3)


def _vgg_layers(inputs: int, widths: tuple[int, ...]) -> Iterator[nn.Module]:
    """Yield 3x3 convolutions of these widths; 0 is a pooling that rounds odd maps up (75 -> 38)."""
    for width in widths:
        if width == 0:
            yield nn.MaxPool2d(2, ceil_mode=True)
        else:
            yield nn.Conv2d(inputs, width, 3, padding=1)
            yield nn.ReLU(inplace=True)
            inputs = width


def _extra_layers(size: int) -> Iterator[nn.Sequential]:
    yield _extra(1024, 256, 512, 3, stride=2, padding=1)
    yield _extra(512, 128, 256, 3, stride=2, padding=1)
    if size == 300:
        yield _extra(256, 128, 256, 3, stride=1, padding=0)
        yield _extra(256, 128, 256, 3, stride=1, padding=0)
    else:
        yield _extra(256, 128, 256, 3, stride=2, padding=1)
        yield _extra(256, 128, 256, 3, stride=2, padding=1)
        yield _extra(256, 128, 256, 4, stride=1, padding=1)


def _extra(
    inputs: int, middle: int, outputs: int, kernel: int, *, stride: int, padding: int
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, middle, 1),
        nn.ReLU(inplace=True),
        nn.Conv2d(middle, outputs, kernel, stride=stride, padding=padding),
        nn.ReLU(inplace=True),
    )


def _levels(size: int, published: str) -> list[Level]:
    scales = [s / size for s in _SCALES[size, published]]
    return [
        Level(
            height=side,
            width=side,
            step=(step / size, step / size),
            shapes=paper_shapes(scales[i], scales[i + 1], ratios),
        )
        for i, (side, step, ratios) in enumerate(zip(_MAPS[size], _STEPS[size], _RATIOS[size], strict=True))
    ]


def _xavier(layer: nn.Module) -> None:
    if isinstance(layer, nn.Conv2d):
        nn.init.xavier_uniform_(layer.weight)
        assert layer.bias is not None
        nn.init.zeros_(layer.bias)


def _he(layer: nn.Module) -> None:
    if isinstance(layer, nn.Conv2d):
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        assert layer.bias is not None
        nn.init.zeros_(layer.bias)
