"""The region proposal network (Ren et al. 2015, section 3.1): its head, its proposals and its losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from boxcrew.nets.anchors import BoxCoder, to_xyxy
from boxcrew.nets.layers import conv_norm
from boxcrew.nets.region_targets import OverlapLabels, Truth, wanted_offsets
from boxcrew.nets.static import Chosen, logit_ranks, nms_top_k, top_ranked

BETA = 1 / 9
"""Distance, in units of the offsets, from which smooth L1 is straight."""

SMALLEST = 1e-3  # pixels: proposals with a shorter side are dropped
CODE = BoxCoder(center_variance=1.0, size_variance=1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class AnchorScores:
    """The outputs for the anchors of one map."""

    objectness: Tensor  # (B, N) before the sigmoid
    offsets: Tensor  # (B, N, 4)
    anchors: Tensor  # (N, 4) center and size in pixels


class RpnHead(nn.Module):
    """Convolutions, the same for all maps, and for each anchor of a cell an objectness and 4 offsets."""

    def __init__(self, width: int, num_anchors: int, *, depth: int, separable: bool) -> None:
        super().__init__()
        layers = (_separable(width) if separable else _full(width) for _ in range(depth))
        self.layers = nn.Sequential(*layers)
        self.objectness = nn.Conv2d(width, num_anchors, 1)
        self.offsets = nn.Conv2d(width, 4 * num_anchors, 1)
        for layer in (self.objectness, self.offsets):
            nn.init.normal_(layer.weight, std=0.01)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return objectness (B, N) and offsets (B, N, 4) of the anchors of a map, cell by cell."""
        hidden = self.layers(features)
        objectness, offsets = self.objectness(hidden), self.offsets(hidden)
        rows = offsets.permute(0, 2, 3, 1).reshape(features.shape[0], -1, 4)
        return objectness.permute(0, 2, 3, 1).flatten(1), rows


def _full(width: int) -> nn.Sequential:
    layer = nn.Conv2d(width, width, 3, padding=1)
    nn.init.normal_(layer.weight, std=0.01)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return nn.Sequential(layer, nn.ReLU(inplace=True))


def _separable(width: int) -> nn.Sequential:
    return nn.Sequential(conv_norm(width, width, 3, groups=width), conv_norm(width, width, 1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Proposals:
    """N regions of each image that may hold an object, best first; padding comes last and is 0."""

    boxes: Tensor  # (B, N, 4) xyxy in pixels, inside the input
    anchors: Tensor  # (B, N) int64, the number of the anchor of each
    valid: Tensor  # (B, N) bool


@dataclass(frozen=True, kw_only=True)
class ProposalLimits:
    """The number of proposals that are made, and the limits below which they are dropped."""

    candidates: int  # of each map, before suppression
    count: int  # of an image, after it
    iou: float  # of two that overlap more, on one map, the weaker is dropped
    min_score: float  # 0..1


@torch.no_grad()
def propose(levels: Sequence[AnchorScores], size: tuple[int, int], limits: ProposalLimits) -> Proposals:
    """Return the proposals for inputs of a (height, width). No gradient flows through them."""
    from torchvision.ops import clip_boxes_to_image

    boxes, scores, numbers, groups = [], [], [], []
    first = 0
    for index, level in enumerate(levels):
        chosen = top_ranked(logit_ranks(level.objectness), count=limits.candidates)
        offsets = level.offsets.gather(1, chosen[..., None].expand(-1, -1, 4))
        boxes.append(clip_boxes_to_image(CODE.decode(offsets, level.anchors[chosen]), size))
        scores.append(level.objectness.gather(1, chosen))
        numbers.append(chosen + first)
        groups.append(torch.full_like(chosen, index))
        first += len(level.anchors)
    all_boxes, all_scores = torch.cat(boxes, dim=1), torch.cat(scores, dim=1)
    sides = all_boxes[..., 2:] - all_boxes[..., :2]
    valid = (sides >= SMALLEST).all(dim=-1) & (all_scores.sigmoid() >= limits.min_score)
    kept = nms_top_k(
        all_boxes,
        logit_ranks(all_scores),
        torch.cat(groups, dim=1),
        valid,
        num_groups=len(levels),
        iou=limits.iou,
        count=limits.count,
    )
    anchors = kept.gather(torch.cat(numbers, dim=1))
    return Proposals(boxes=kept.gather(all_boxes), anchors=anchors, valid=kept.valid)


def rpn_losses(
    levels: Sequence[AnchorScores], truth: Truth, labels: OverlapLabels, chosen: Chosen
) -> dict[str, Tensor]:
    """Return the losses of the chosen anchors, for each image divided by the number of its chosen anchors,
    and summed over images (equation 1, with both divisors the same as in the authors' code).
    """
    anchors = torch.cat([level.anchors for level in levels])
    objectness = chosen.gather(torch.cat([level.objectness for level in levels], dim=1))
    offsets = chosen.gather(torch.cat([level.offsets for level in levels], dim=1))
    positive = chosen.gather(labels.positive)
    counts = chosen.valid.sum(dim=1).clamp(min=1)
    wanted = truth.boxes_of(chosen.gather(labels.owner))
    targets = wanted_offsets(CODE, to_xyxy(anchors)[chosen.index], wanted, positive)
    distance = F.smooth_l1_loss(offsets, targets, reduction="none", beta=BETA).sum(dim=-1)
    entropy = F.binary_cross_entropy_with_logits(objectness, positive.to(objectness.dtype), reduction="none")
    return {
        "objectness": ((entropy * chosen.valid).sum(dim=1) / counts).sum(),
        "proposal": ((distance * positive).sum(dim=1) / counts).sum(),
    }
