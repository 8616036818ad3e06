"""Faster R-CNN (Ren et al. 2015): a network that proposes regions, and a head that classifies them, on any
timm backbone, with a top-down path (Lin et al. 2017) or without.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.types import Batch, Losses
from boxcrew.detectors._base import DETECTORS, HeightWidth, input_hw
from boxcrew.detectors._faster_rcnn_config import FasterRcnnConfig
from boxcrew.detectors._regions import RegionDetector, require_sizes
from boxcrew.detectors._torchvision_faster_rcnn import from_torchvision, torchvision_name
from boxcrew.nets.anchor_grid import best_overlaps
from boxcrew.nets.anchors import to_xyxy
from boxcrew.nets.backbones import Backbone
from boxcrew.nets.fpn import Fpn, Narrow
from boxcrew.nets.late_maps import LateMaps
from boxcrew.nets.layers import Normalize, TopDown
from boxcrew.nets.region_head import RegionChoice, RegionHead, moved_boxes, region_losses, sample_regions
from boxcrew.nets.region_targets import OverlapRule, Truth, label_boxes
from boxcrew.nets.regions import pool_regions
from boxcrew.nets.rpn import AnchorScores, ProposalLimits, Proposals, RpnHead, propose, rpn_losses
from boxcrew.nets.static import hashed_keys
from boxcrew.nets.weights import State

_MORE_IN_TRAINING = 2  # times as many proposals as in use


@DETECTORS.register("faster_rcnn")
class FasterRcnn(RegionDetector):
    """A backbone, a top-down path, a region proposal network, and a head for the regions it proposes."""

    config_class = FasterRcnnConfig
    config: FasterRcnnConfig

    def __init__(self, config: FasterRcnnConfig, classes: tuple[str, ...]) -> None:
        super().__init__(config, classes)
        self.backbone = _backbone(config)
        self.normalize = Normalize(*self.backbone.expected_normalization())
        self.pooled_strides = self.backbone.strides[: config.num_maps]
        strides = list(self.pooled_strides)
        while len(strides) < config.num_maps:
            strides.append(strides[-1] * 2)
        self.grids = config.grids(strides)
        self.neck = _neck(config, self.backbone.channels)
        self.rpn = RpnHead(
            config.neck,
            len(self.grids[0].shapes),
            depth=config.rpn_depth,
            separable=config.pyramid == "separable",
        )
        self.head = RegionHead(
            config.neck, config.head_width, len(classes), convolutions=config.head == "conv"
        )

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return for each of K proposals scores before softmax (B, K, 1 + C), background first, boxes
        (B, K, C, 4), one for each class, xyxy in pixels and not clipped, and 1 where it is valid (B, K).
        """
        maps, levels = self._anchor_scores(images)
        proposals = self._propose(levels, input_hw(images), times=1)
        scores, offsets = self._classify(maps, proposals.boxes)
        return scores, moved_boxes(offsets, proposals.boxes), proposals.valid.to(scores.dtype)

    def losses(self, batch: Batch) -> Losses:
        """Return the losses of anchors and regions. Each image's are divided by its own counts, and the
        weight is the number of images, so that any split of a step learns the same.
        """
        config = self.config
        maps, levels = self._anchor_scores(batch.inputs)
        anchors = to_xyxy(torch.cat([level.anchors for level in levels]))
        truth = Truth.of(batch.targets, anchors.dtype)
        rule = OverlapRule(
            positive_iou=config.rpn_positive_iou, negative_iou=config.rpn_negative_iou, best_too=True
        )
        labels = label_boxes(anchors, truth, rule)
        chosen = labels.choose(
            hashed_keys(batch.draws, len(anchors)),
            count=config.rpn_samples,
            max_positive=config.rpn_samples // 2,
        )
        terms = rpn_losses(levels, truth, labels, chosen)
        proposals = self._propose(levels, input_hw(batch.inputs), times=_MORE_IN_TRAINING)
        boxes, valid, keys = _candidates(proposals, truth, batch.draws, num_anchors=len(anchors))
        choice = RegionChoice(
            count=config.regions, positive_share=config.region_positives, positive_iou=config.region_iou
        )
        sample = sample_regions(boxes, valid, keys, truth, choice)
        terms |= region_losses(*self._classify(maps, sample.boxes), sample)
        return Losses(terms=terms, weight=anchors.new_tensor(float(len(batch))))

    def proposals(self, images: Tensor) -> list[Tensor]:
        _, levels = self._anchor_scores(images)
        proposals = self._propose(levels, input_hw(images), times=1)
        return [boxes[valid] for boxes, valid in zip(proposals.boxes, proposals.valid, strict=True)]

    def best_anchor_iou(self, boxes: Tensor) -> Tensor:
        """Return the IoU (N,) of each box with its best anchor; the best of each object always learns it."""
        size = self.config.size
        longest = size.limit or size.sides[-1]
        return best_overlaps(boxes, self.grids, (longest, longest))

    def convert_foreign(self, state: State) -> State:
        name = torchvision_name(state)
        return state if name is None else from_torchvision(name, state, self.config)

    def _anchor_scores(self, images: Tensor) -> tuple[list[Tensor], list[AnchorScores]]:
        """Return the maps that regions are pooled from, and the outputs for the anchors of all maps."""
        maps = self.neck(self.backbone(self.normalize(images))[: len(self.pooled_strides)])
        extended = list(maps)
        while len(extended) < len(self.grids):
            extended.append(F.max_pool2d(extended[-1], kernel_size=1, stride=2))
        levels = []
        for features, grid in zip(extended, self.grids, strict=True):
            objectness, offsets = self.rpn(features)
            exact = torch.promote_types(
                offsets.dtype, torch.float32
            )  # half precision is too coarse for boxes
            offsets = offsets.to(exact)
            anchors = grid.on_map(*features.shape[-2:], like=offsets)
            levels.append(AnchorScores(objectness=objectness.to(exact), offsets=offsets, anchors=anchors))
        return maps, levels

    def _propose(self, levels: Sequence[AnchorScores], size: HeightWidth, *, times: int) -> Proposals:
        config = self.config
        limits = ProposalLimits(
            candidates=times * config.candidates,
            count=times * config.proposals,
            iou=config.proposal_iou,
            min_score=config.proposal_score,
        )
        return propose(levels, size, limits)

    def _classify(self, maps: Sequence[Tensor], boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores (B, K, 1 + C) and offsets (B, K, C, 4) of regions (B, K, 4)."""
        pooled = pool_regions(maps, self.pooled_strides, boxes, how=self.config.pooling)
        scores, offsets = (output.unflatten(0, boxes.shape[:2]) for output in self.head(pooled))
        return scores.to(boxes.dtype), offsets.to(boxes.dtype)


def _candidates(
    proposals: Proposals, truth: Truth, draws: Tensor, *, num_anchors: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the proposals and true boxes (B, N, 4) of images, which of them are valid, and the key of each,
    which is that of its anchor or object and so independent of places in a list.
    """
    num_objects = truth.labels.shape[1]
    keys = hashed_keys(draws + 1, num_anchors).gather(1, proposals.anchors)
    return (
        torch.cat((proposals.boxes, truth.boxes), dim=1),
        torch.cat((proposals.valid, truth.learned), dim=1),
        torch.cat((keys, hashed_keys(draws + 2, num_objects)), dim=1),
    )


def _backbone(config: FasterRcnnConfig) -> Backbone:
    with torch.device("meta"):  # on a copy that computes nothing
        require_sizes(config, _build_backbone(config).eval())
    return _build_backbone(config)


def _build_backbone(config: FasterRcnnConfig) -> Backbone:
    if config.maps == "late":
        return LateMaps(config.backbone)
    return Backbone(config.backbone, finest_stride=config.stride, num_maps=config.num_maps)


def _neck(config: FasterRcnnConfig, channels: Sequence[int]) -> nn.Module:
    depths = channels[: config.num_maps]
    if config.pyramid == "none":
        return Narrow(depths[0], width=config.neck)
    if config.pyramid == "separable":
        return TopDown(depths, width=config.neck)
    return Fpn(depths, width=config.neck, norms=config.pyramid == "fpn_norm")
