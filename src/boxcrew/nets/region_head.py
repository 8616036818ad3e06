"""The head of region detectors (Girshick 2015, section 2): classes and boxes of pooled regions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from boxcrew.nets.anchors import BoxCoder, to_center_size
from boxcrew.nets.region_targets import OverlapRule, Truth, label_boxes, wanted_offsets
from boxcrew.nets.regions import BINS
from boxcrew.nets.rpn import BETA

CODE = BoxCoder()  # deviations 0.1, 0.1, 0.2, 0.2
_CONVOLUTIONS = 4


class RegionHead(nn.Module):
    """Hidden layers, then 1 + C scores and 4 offsets for each class.

    The hidden layers are two fully connected ones, or with `convolutions` four 3 x 3 convolutions and one
    fully connected layer.
    """

    def __init__(self, inputs: int, width: int, num_classes: int, *, convolutions: bool) -> None:
        super().__init__()
        flat = inputs * BINS**2
        if convolutions:
            layers = [_convolution(inputs) for _ in range(_CONVOLUTIONS)]
            self.hidden = nn.Sequential(*layers, nn.Flatten(), nn.Linear(flat, width), nn.ReLU(inplace=True))
        else:
            linear = nn.Linear(flat, width), nn.ReLU(inplace=True), nn.Linear(width, width)
            self.hidden = nn.Sequential(nn.Flatten(), *linear, nn.ReLU(inplace=True))
        self.scores = nn.Linear(width, 1 + num_classes)
        self.offsets = nn.Linear(width, 4 * num_classes)
        for layer, std in ((self.scores, 0.01), (self.offsets, 0.001)):
            nn.init.normal_(layer.weight, std=std)
            nn.init.zeros_(layer.bias)

    def forward(self, pooled: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores before softmax (N, 1 + C), background first, and offsets (N, C, 4) of regions."""
        hidden = self.hidden(pooled)
        return self.scores(hidden), self.offsets(hidden).unflatten(1, (-1, 4))


def _convolution(width: int) -> nn.Sequential:
    layer = nn.Conv2d(width, width, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(layer, nn.BatchNorm2d(width), nn.ReLU(inplace=True))


@dataclass(frozen=True, kw_only=True, eq=False)
class RegionSample:
    """K regions of each image to learn from, and what they learn."""

    boxes: Tensor  # (B, K, 4) xyxy in pixels
    classes: Tensor  # (B, K) 0 for background, else the class + 1
    offsets: Tensor  # (B, K, 4), 0 for background
    valid: Tensor  # (B, K) bool, false for padding


@dataclass(frozen=True, kw_only=True)
class RegionChoice:
    """The number of regions to learn from, and the overlap from which one learns an object or background."""

    count: int  # of an image
    positive_share: float  # of them, at most
    positive_iou: float  # at least this much: positive; less: background,
    negative_from: float = 0.0  # but at least this much, if the image has objects


@torch.no_grad()
def sample_regions(
    boxes: Tensor, valid: Tensor, keys: Tensor, truth: Truth, choice: RegionChoice
) -> RegionSample:
    """Choose some of N regions, xyxy (B, N, 4), by the smallest of the keys (B, N) of their own numbers."""
    iou = choice.positive_iou
    rule = OverlapRule(positive_iou=iou, negative_iou=iou, negative_from=choice.negative_from)
    labels = label_boxes(boxes, truth, rule).masked(valid)
    max_positive = int(choice.count * choice.positive_share)
    chosen = labels.choose(keys, count=choice.count, max_positive=max_positive)
    regions, positive = chosen.gather(boxes), chosen.gather(labels.positive)
    owner = chosen.gather(labels.owner)
    return RegionSample(
        boxes=regions,
        classes=torch.where(positive, truth.labels.gather(1, owner) + 1, 0),
        offsets=wanted_offsets(CODE, regions, truth.boxes_of(owner), positive),
        valid=chosen.valid,
    )


def region_losses(
    scores: Tensor, offsets: Tensor, sample: RegionSample, *, beta: float = BETA
) -> dict[str, Tensor]:
    """Return the losses of scores (B, K, 1 + C) and offsets (B, K, C, 4), for each image divided by the
    number of its regions, and summed over images. From `beta` on, smooth L1 is straight.
    """
    own = (sample.classes - 1).clamp(min=0)[..., None, None].expand(-1, -1, 1, 4)
    distance = F.smooth_l1_loss(
        offsets.gather(2, own).squeeze(2), sample.offsets, reduction="none", beta=beta
    ).sum(dim=-1)
    return {
        "class": region_class_loss(scores, sample),
        "box": ((distance * (sample.classes > 0)).sum(dim=1) / _num_regions(sample)).sum(),
    }


def region_class_loss(scores: Tensor, sample: RegionSample) -> Tensor:
    """Return the class loss of `region_losses`, for detectors that learn no boxes by descent."""
    entropy = F.cross_entropy(scores.flatten(0, 1), sample.classes.flatten(), reduction="none")
    entropy = entropy.reshape_as(sample.classes) * sample.valid
    return (entropy.sum(dim=1) / _num_regions(sample)).sum()


def _num_regions(sample: RegionSample) -> Tensor:
    """Return the number (B,) of regions to learn from in each image, at least 1."""
    return sample.valid.sum(dim=1).clamp(min=1)


def moved_boxes(offsets: Tensor, boxes: Tensor) -> Tensor:
    """Return the boxes (B, K, C, 4), xyxy, of the offsets (B, K, C, 4) from regions (B, K, 4)."""
    return CODE.decode(offsets, to_center_size(boxes)[:, :, None])
