"""The base of detectors that are fine-tuned by softmax and then solved: linear SVMs for classes, and ridge
regression for boxes (R-CNN, Girshick et al. 2014, sections 2.3 and C; SPPNet, He et al. 2014, section 4).
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.stage import Stage
from boxcrew.core.types import Batch, Losses
from boxcrew.detectors._base import ImageBatches
from boxcrew.detectors._feature_store import FeatureStore, require_room
from boxcrew.detectors._regions import Count, ProposalConfig, RegionDetector, sample_training_regions
from boxcrew.nets.anchors import BoxCoder, to_center_size
from boxcrew.nets.box_ridge import BoxExamples, solve_boxes
from boxcrew.nets.labeled_regions import LabeledRegions, near_objects
from boxcrew.nets.linear_svm import RegionLabels, RegionRows, require_scikit_learn, solve_svms
from boxcrew.nets.network import ClassRows
from boxcrew.nets.region_head import region_class_loss

CODE = BoxCoder(center_variance=1.0, size_variance=1.0)
SVM = "svm"  # the stage that solves
_SLOPE = 4.0  # of the sigmoid that squashes margins: the border of the background, at -1, gets 0.02


class SolvedConfig(ProposalConfig):
    """Settings common to detectors with a solved head."""

    proposals: Count = 200
    """Proposals of an image, at most."""
    neck: int = Field(default=64, ge=8, le=512)
    """Channels that the last map of the backbone is reduced to."""
    head_width: int = Field(default=512, ge=16, le=4096)
    """Outputs of each fully connected layer of the head: the features that SVMs see."""
    regions: Count = 32
    """Regions of an image that are fine-tuned on."""

    def stages(self) -> tuple[Stage, ...]:
        # All regions are computed for the SVMs, and then those near objects for the boxes.
        return Stage(name="finetune", fraction=1.0), Stage(name=SVM, kind="solve", passes=1.5)

    def num_rows(self, num_images: int) -> int:
        """Return how many regions SVMs are solved from, at most: the proposals, and about an object each."""
        return num_images * (self.proposals + 1)

    def require_solvable(self, num_images: int, folder: Path) -> None:
        require_scikit_learn()
        require_room(folder, num_rows=self.num_rows(num_images), width=self.head_width)


class SolvedHead(nn.Module):
    """Hidden layers on pooled regions; softmax scores to fine-tune them, SVMs on the last of them, and box
    regression on the pooled regions themselves. SVMs and regression are zero until they are solved.
    """

    svm_weight: Tensor  # (C, width)
    svm_bias: Tensor  # (C,)
    offset_weight: Tensor  # (4 C, pooled)
    offset_bias: Tensor  # (4 C,)
    is_solved: Tensor  # bool

    def __init__(self, num_pooled: int, width: int, num_classes: int) -> None:
        super().__init__()
        layers = nn.Linear(num_pooled, width), nn.ReLU(inplace=True), nn.Linear(width, width)
        self.hidden = nn.Sequential(*layers, nn.ReLU(inplace=True))
        self.scores = nn.Linear(width, 1 + num_classes)
        nn.init.normal_(self.scores.weight, std=0.01)
        nn.init.zeros_(self.scores.bias)
        # Buffers, not parameters: gradient descent must not move what is solved.
        self.register_buffer("svm_weight", torch.zeros(num_classes, width))
        self.register_buffer("svm_bias", torch.zeros(num_classes))
        self.register_buffer("offset_weight", torch.zeros(4 * num_classes, num_pooled))
        self.register_buffer("offset_bias", torch.zeros(4 * num_classes))
        self.register_buffer("is_solved", torch.tensor(data=False))

    def forward(self, pooled: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-odds (N, C) of the classes and the offsets (N, C, 4) of regions."""
        hidden = self.hidden(pooled)
        exact = torch.promote_types(hidden.dtype, torch.float32)  # half precision is too coarse for boxes
        softmax = self.scores(hidden).to(exact).softmax(dim=-1)[:, 1:].logit(eps=1e-6)
        margins = F.linear(hidden.to(exact), self.svm_weight.to(exact), self.svm_bias.to(exact))
        offsets = F.linear(pooled.to(exact), self.offset_weight.to(exact), self.offset_bias.to(exact))
        return torch.where(self.is_solved, _SLOPE * margins, softmax), offsets.reshape(
            offsets.shape[0], -1, 4
        )


class SolvedRegions(RegionDetector):
    """A detector of pooled regions with a `SolvedHead`."""

    not_transferred = ("head.is_solved",)  # the SVMs of another training do not suit features that learn
    config: SolvedConfig
    head: SolvedHead
    background_from: ClassVar[float]  # IoU from which on regions are fine-tuned on as background
    ridge: ClassVar[float]  # lambda of the box regression
    regression_iou: ClassVar[float]  # proposals that overlap an object by more learn its box

    @abstractmethod
    def pool(self, images: Tensor, boxes: Tensor) -> Tensor:
        """Return the features (B * K, P) of regions (B, K, 4) of normalized images, before hidden layers."""

    def forward(self, images: Tensor, regions: Tensor, valid: Tensor) -> tuple[Tensor, ...]:
        """Return for each region (B, K, 4) the log-odds (B, K, C) of each class, boxes (B, K, C, 4), and 1
        where it is valid (B, K).
        """
        pooled = self.pool(self.normalize(images), regions)
        scores, offsets = (
            output.reshape(*regions.shape[:2], *output.shape[1:]) for output in self.head(pooled)
        )
        boxes = CODE.decode(offsets.to(scores.dtype), to_center_size(regions.to(scores.dtype))[:, :, None])
        return scores, boxes, valid.to(scores.dtype)

    def probabilities(self, scores: Tensor) -> Tensor:
        return scores.sigmoid()

    def losses(self, batch: Batch) -> Losses:
        """Return the class loss of some regions of each image, divided by their number; the weight is the
        number of images, so that any split of a step learns the same. Boxes are not learned by descent.
        """
        config = self.config
        dtype, background_from = self.normalize.mean.dtype, self.background_from
        sample = sample_training_regions(
            batch, config, dtype, count=config.regions, background_from=background_from
        )
        hidden = self.head.hidden(self.pool(self.normalize(batch.inputs), sample.boxes))
        scores = self.head.scores(hidden).unflatten(0, sample.classes.shape)
        loss = region_class_loss(scores, sample)
        return Losses(terms={"class": loss}, weight=loss.new_tensor(float(len(batch))))

    def class_tensors(self) -> Mapping[str, ClassRows]:
        rows = {"scores.weight": ClassRows(shared=1), "scores.bias": ClassRows(shared=1)}
        rows |= {"svm_weight": ClassRows(), "svm_bias": ClassRows()}
        rows |= {"offset_weight": ClassRows(each=4), "offset_bias": ClassRows(each=4)}
        return {f"head.{name}": layout for name, layout in rows.items()}

    def solve(self, stage: str, batches: ImageBatches, workspace: Path) -> None:
        """Set the SVMs, from features of all regions, then the box regression, from regions near objects."""
        assert stage == SVM
        store = FeatureStore.open(
            workspace,
            identity=_identity(self),
            width=self.config.head_width,
            num_rows=self.config.num_rows(len(batches)),
        )
        images = self._image_rows(batches, store)
        weights, biases = solve_svms(images, len(self.classes))
        self.head.svm_weight.copy_(torch.from_numpy(weights))
        self.head.svm_bias.copy_(torch.from_numpy(biases))
        boxes = solve_boxes(self._box_examples(batches), len(self.classes), ridge=self.ridge)
        self.head.offset_weight.copy_(torch.from_numpy(boxes[0]).flatten(0, 1))
        self.head.offset_bias.copy_(torch.from_numpy(boxes[1]).flatten())
        self.head.is_solved.fill_(value=True)

    def _image_rows(self, batches: Iterable[Batch], store: FeatureStore) -> list[RegionRows]:
        """Return the proposals and objects of each image, with their features, which are computed unless the
        store has them.
        """
        labels: dict[str, RegionLabels] = {}
        for batch in batches:
            regions = LabeledRegions.of(batch, len(self.classes))
            labels |= zip(batch.keys, regions.images, strict=True)
            digests = [_digest(*values) for values in zip(batch.inputs, regions.boxes, strict=True)]
            named = enumerate(zip(batch.keys, digests, strict=True))
            missing = [row for row, (key, digest) in named if not store.has(key, digest)]
            if not missing:
                continue
            boxes = regions.boxes[missing]
            pooled = self.pool(self.normalize(batch.inputs[missing]), boxes)
            for row, values in zip(
                missing, self.head.hidden(pooled).unflatten(0, boxes.shape[:2]), strict=True
            ):
                store.append(batch.keys[row], digests[row], values[regions.valid[row]].numpy())
        features = store.all_rows()
        return [RegionRows(features=features[key], **vars(each)) for key, each in labels.items()]

    def _box_examples(self, batches: Iterable[Batch]) -> BoxExamples:
        """Return some proposals of each image that overlap an object enough to learn the way to it."""
        features, offsets, classes = [], [], []
        for batch in batches:
            near = near_objects(batch, min_iou=self.regression_iou)
            pooled = self.pool(self.normalize(batch.inputs), near.boxes)
            features.append(pooled[near.valid.flatten()].numpy())
            way = CODE.encode(near.objects, to_center_size(near.boxes))
            offsets.append(way[near.valid].numpy())
            classes.append(near.classes[near.valid].numpy())
        return BoxExamples(
            features=np.concatenate(features),
            offsets=np.concatenate(offsets),
            classes=np.concatenate(classes),
        )


def _identity(network: nn.Module) -> str:
    """Return a digest of all values of a network."""
    names = "".join(network.state_dict())
    return (
        _digest(*network.state_dict().values()) + hashlib.blake2b(names.encode(), digest_size=8).hexdigest()
    )


def _digest(*values: Tensor) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for value in values:
        digest.update(value.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
