"""The base of detectors that classify regions, and the settings of those that get their regions as inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

import torch
from pydantic import Field, field_validator
from torch import Tensor

from boxcrew.core.errors import UsageError, first_line
from boxcrew.core.types import Batch
from boxcrew.data.proposals.methods import SELECTIVE_SEARCH
from boxcrew.detectors._base import Candidates, DetectorConfig, DetectorNet, HeightWidth, Share
from boxcrew.nets.backbones import Backbone
from boxcrew.nets.network import ClassRows
from boxcrew.nets.region_head import RegionChoice, RegionSample, sample_regions
from boxcrew.nets.region_targets import Truth
from boxcrew.nets.static import hashed_keys

_SMALLEST = 0.01  # pixels: detections with a shorter side are dropped

Count = Annotated[int, Field(ge=1)]


class ProposalConfig(DetectorConfig):
    """Settings common to detectors whose regions are proposed by something else."""

    learned_from: ClassVar[str] = "proposals"

    score_threshold: Share = 0.01
    """Detections with a lower score are dropped."""
    nms_iou: Share = 0.3
    """Of two detections of a class that overlap more than this, the weaker is dropped."""
    max_detections: Count = 100
    """Detections of an image, at most."""
    backbone: str = "pplcnetv2_base"
    """Name of a timm network."""
    proposal_method: str = "fast"
    """Selective search with 12 segmentations (fast) or 80 (quality), or the run of a Faster R-CNN."""
    proposals: Count = 500
    """Proposals of an image, at most."""
    positives: Share = 0.25
    """Fraction of the regions to learn from that have an object, at most."""
    region_iou: Share = 0.5
    """Regions that overlap an object by this much learn it."""

    @field_validator("proposal_method")
    @classmethod
    def _is_absolute(cls, name: str) -> str:
        """Make a path absolute, so that the detector can be used from any directory."""
        is_path = name not in SELECTIVE_SEARCH and Path(name).exists()
        return str(Path(name).resolve()) if is_path else name

    @property
    def num_regions(self) -> int:
        return self.proposals


class RegionDetector(DetectorNet):
    """A detector that classifies K regions of each image. `forward` returns scores (B, K, …), boxes
    (B, K, C, 4), one for each class, xyxy in pixels and not clipped, and 1 where a region is valid (B, K).
    """

    backbone: Backbone

    def probabilities(self, scores: Tensor) -> Tensor:
        """Return the probability (B, K, C) of each class; here by softmax, with the background first."""
        return scores.softmax(dim=-1)[..., 1:]

    def candidates(self, raw: tuple[Tensor, ...], size: HeightWidth) -> Candidates:
        from torchvision.ops import clip_boxes_to_image

        scores, boxes, valid = (numbers.float() for numbers in raw)
        boxes = clip_boxes_to_image(boxes, size)
        has_size = (boxes[..., 2:] - boxes[..., :2] >= _SMALLEST).all(dim=-1)
        probabilities = self.probabilities(scores) * (has_size & (valid[..., None] > 0))  # 0: no detection
        labels = torch.arange(boxes.shape[2], device=boxes.device).expand_as(probabilities)
        return Candidates(boxes.flatten(1, 2), probabilities.flatten(1), labels.flatten(1))

    def class_tensors(self) -> Mapping[str, ClassRows]:
        layouts = {"scores": ClassRows(shared=1), "offsets": ClassRows(each=4)}
        return {
            f"head.{layer}.{name}": rows for layer, rows in layouts.items() for name in ("weight", "bias")
        }

    def backbone_prefix(self) -> str:
        return "backbone.body."

    def expected_normalization(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self.backbone.expected_normalization()


def with_true_boxes(batch: Batch, truth: Truth) -> tuple[Tensor, Tensor, Tensor]:
    """Return the proposals and learned objects (B, N, 4) of a training batch, which of them are valid, and
    the key of each, which is that of its own number. Objects are proposals too, in training only.
    """
    regions, valid = batch.extra["regions"].to(truth.boxes.dtype), batch.extra["regions_valid"]
    keys = hashed_keys(batch.draws, regions.shape[1]), hashed_keys(batch.draws + 1, truth.labels.shape[1])
    return (
        torch.cat((regions, truth.boxes), dim=1),
        torch.cat((valid, truth.learned), dim=1),
        torch.cat(keys, dim=1),
    )


def sample_training_regions(
    batch: Batch, config: ProposalConfig, dtype: torch.dtype, *, count: int, background_from: float
) -> RegionSample:
    """Return `count` regions of each image to learn from, of its proposals and objects. Those that overlap
    an object by `background_from` up to `config.region_iou` are background.
    """
    truth = Truth.of(batch.targets, dtype)
    choice = RegionChoice(
        count=count,
        positive_share=config.positives,
        positive_iou=config.region_iou,
        negative_from=background_from,
    )
    return sample_regions(*with_true_boxes(batch, truth), truth, choice)


def require_sizes(config: DetectorConfig, backbone: Backbone) -> None:
    """Raise `UsageError` if a backbone, which is on the meta device, cannot take the inputs."""
    for index in range(len(config.size.sides)):
        width, height = config.size.at(index).canvas([(4, 3)])
        try:
            backbone(torch.empty(1, 3, height, width, device="meta"))
        except (AssertionError, RuntimeError) as error:  # transformers of a fixed size
            reason = first_line(error)
            raise UsageError(
                f"detector.size={config.size}: not a size that detector.backbone={backbone.name} "
                f"takes: {reason}",
                advice="choose another size or another backbone",
            ) from None
