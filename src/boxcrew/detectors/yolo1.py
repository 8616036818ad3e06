"""The first YOLO (Redmon et al. 2016): a grid of cells, each with a few boxes and the classes of one object.

Numbers in comments are sections and equations of the paper; "the authors' code" is darknet. The backbone is
any timm network instead of the paper's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.errors import UsageError
from boxcrew.core.input_size import InputSize
from boxcrew.core.types import Batch, Losses
from boxcrew.detectors._base import (
    DETECTORS,
    Candidates,
    DetectorConfig,
    DetectorNet,
    HeightWidth,
    ScoredBoxes,
)
from boxcrew.detectors._points import best_candidates
from boxcrew.nets.backbones import Backbone
from boxcrew.nets.layers import Normalize, activation_layer
from boxcrew.nets.network import ClassRows
from boxcrew.nets.static import hashed_keys

COORDINATES, NO_OBJECT = 5.0, 0.5  # lambda_coord and lambda_noobj (2.2)
_NUMBERS = 5  # of a box: x and y in its cell, the roots of width and height, confidence
_START = 0.5  # what x, y and the roots begin near: the middle of a cell, and half of the image's sides


class Yolo1Config(DetectorConfig):
    takes_several_sizes = False
    takes_any_shape = False

    name: Literal["yolo1"] = "yolo1"
    size: InputSize = InputSize((224,))
    """Side of the square input in pixels, such that the grid fits the backbone; 448 in the paper."""
    score_threshold: float = Field(default=0.001, ge=0, le=1)
    """Detections with a lower score are dropped."""
    nms_iou: float = Field(default=0.5, ge=0, le=1)
    """Of two detections of a class that overlap more than this, the weaker is dropped."""
    backbone: str = "tf_efficientnet_lite0"
    """Name of a timm network with two or more feature maps, of which the last is used."""
    grid: int = Field(default=7, ge=2, le=32)
    """Cells in each direction, S in the paper; each finds one object at most."""
    boxes: int = Field(default=2, ge=1, le=10)
    """Boxes of a cell, B in the paper."""
    head: Literal["fc", "conv"] = "fc"
    """Head: fc has two fully connected layers, as in the paper; conv is smaller and sees only near cells."""
    neck: int = Field(default=128, ge=8)
    """Channels of the convolutions between backbone and head; 1024 in the paper."""
    hidden: int = Field(default=1024, ge=8)
    """Units of the first fully connected layer (head=fc); 4096 in the paper."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """Dropout after the first fully connected layer (head=fc)."""

    @model_validator(mode="after")
    def _is_divisible(self) -> Self:
        if self.size.square % self.grid:
            raise UsageError(
                f"size={self.size}: cannot be divided into detector.grid={self.grid} cells",
                advice=_fitting_sizes(self.grid, stride=32),
            )
        return self


def _fitting_sizes(grid: int, *, stride: int) -> str:
    return f"size={grid * stride} or size={2 * grid * stride} fit most backbones"


class _Boxes(NamedTuple):
    """The numbers of the boxes of S² cells of N images; x, y, w and h are fractions of the input."""

    offsets: Tensor  # (N, S², B, 2) x, y in the cell, which is 1 wide and high
    roots: Tensor  # (N, S², B, 2) of w, h; the network may make them negative
    confidences: Tensor  # (N, S², B)
    classes: Tensor  # (N, S², C)

    def corners(self, cells: Tensor, grid: int) -> Tensor:
        """Return (N, S², B, 4) xyxy. `cells` (S², 2) are the columns and rows of the cells."""
        centers, sides = (self.offsets + cells[:, None]) / grid, self.roots**2
        return torch.cat((centers - sides / 2, centers + sides / 2), dim=-1)


class _Learned(NamedTuple):
    """The objects that S² cells of N images learn."""

    has_object: Tensor  # (N, S²)
    corners: Tensor  # (N, S², 1, 4) xyxy of the object, as fractions of the input; any where there is none
    labels: Tensor  # (N, S²)


@DETECTORS.register("yolo1")
class Yolo1(DetectorNet):
    """A backbone, convolutions to S x S cells, and a head with 5 B + C numbers for each cell."""

    config_class = Yolo1Config
    config: Yolo1Config

    def __init__(self, config: Yolo1Config, classes: tuple[str, ...]) -> None:
        super().__init__(config, classes)
        self.backbone = Backbone(config.backbone, finest_stride=8)
        self.normalize = Normalize(*self.backbone.expected_normalization())
        num_halvings = _num_halvings(config, self.backbone.strides[-1])
        self.neck = nn.Sequential(
            _conv(self.backbone.channels[-1], config.neck),
            *(_conv(config.neck, config.neck, stride=2) for _ in range(num_halvings)),
            _conv(config.neck, config.neck),
        )
        numbers = _NUMBERS * config.boxes + len(classes)
        if config.head == "fc":
            cells = config.grid**2
            self.hidden: nn.Module = nn.Sequential(
                nn.Linear(cells * config.neck, config.hidden), activation_layer("leaky_relu")
            )
            self.output: nn.Linear | nn.Conv2d = nn.Linear(config.hidden, cells * numbers)
        else:
            self.hidden = _conv(config.neck, config.neck)
            self.output = nn.Conv2d(config.neck, numbers, 1)
        self._initialize_output(numbers)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return (N, S², 5 B + C), cells row by row: x, y, √w, √h, confidence of each box, then classes."""
        return (self._numbers(images, None),)

    def losses(self, batch: Batch) -> Losses:
        """Return the terms of equation 3 as sums; the weight is the number of images.

        Of several objects in a cell one is learned, chosen by the sample's draw, so that it is another one in
        another epoch. Dropout comes from the draw too.
        """
        numbers = self._numbers(batch.inputs, batch.draws if self.training else None)
        exact = torch.promote_types(numbers.dtype, torch.float32)  # half precision is too coarse for sums
        found = self._split(numbers.to(exact))
        learned = self._learned(batch, exact)
        cells, grid = self._cells(found.offsets), self.config.grid
        iou, responsible = _responsible(found.corners(cells, grid).detach(), learned.corners)
        responsible = responsible & learned.has_object[..., None]
        low, high = learned.corners.chunk(2, dim=-1)
        offsets, roots = (low + high) / 2 * grid - cells[:, None], (high - low).clamp(min=0).sqrt()
        wanted_classes = F.one_hot(learned.labels, len(self.classes)).to(exact)
        class_errors = (found.classes - wanted_classes).square().sum(dim=-1)
        return Losses(
            terms={
                "center": COORDINATES * _sum_where(responsible, (found.offsets - offsets).square().sum(-1)),
                "size": COORDINATES * _sum_where(responsible, (found.roots - roots).square().sum(-1)),
                "object": _sum_where(responsible, (found.confidences - iou).square()),
                "no_object": NO_OBJECT * _sum_where(~responsible, found.confidences.square()),
                "class": _sum_where(learned.has_object, class_errors),
            },
            weight=numbers.new_full((), len(batch), dtype=exact),
        )

    def candidates(self, raw: tuple[Tensor, ...], size: HeightWidth) -> Candidates:
        return best_candidates(self.scored_boxes(raw, size), size, count=self.num_candidates)

    def scored_boxes(self, raw: tuple[Tensor, ...], size: HeightWidth) -> ScoredBoxes:
        """Score each box for each class by confidence x probability (2, equation 1), both limited to 0..1."""
        found = self._split(raw[0].float())
        scores = found.confidences.clamp(0, 1)[..., None] * found.classes.clamp(0, 1)[:, :, None]
        corners = found.corners(self._cells(found.offsets), self.config.grid).flatten(1, 2)
        return ScoredBoxes(corners * corners.new_tensor(size[::-1] * 2), scores.flatten(1, 2))

    def class_tensors(self) -> Mapping[str, ClassRows]:
        blocks = self.config.grid**2 if self.config.head == "fc" else 1
        rows = ClassRows(blocks=blocks, shared=_NUMBERS * self.config.boxes)
        return {"output.weight": rows, "output.bias": rows}

    def backbone_prefix(self) -> str:
        return "backbone.body."

    def expected_normalization(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self.backbone.expected_normalization()

    def _initialize_output(self, numbers: int) -> None:
        """Begin with boxes in the middle of their cells, without confidence and with classes alike."""
        nn.init.normal_(self.output.weight, std=0.01)
        bias = torch.zeros(numbers)
        for box in range(self.config.boxes):
            bias[_NUMBERS * box : _NUMBERS * box + 4] = _START
        bias[_NUMBERS * self.config.boxes :] = 1 / len(self.classes)
        assert self.output.bias is not None
        with torch.no_grad():
            self.output.bias.copy_(bias.repeat(len(self.output.bias) // numbers))

    def _numbers(self, images: Tensor, draws: Tensor | None) -> Tensor:
        """Return the outputs of all cells (N, S², 5 B + C); with `draws` (N,), units are dropped."""
        features = self.neck(self.backbone(self.normalize(images))[-1])
        num_numbers = _NUMBERS * self.config.boxes + len(self.classes)
        if self.config.head == "conv":
            rows: Tensor = self.output(self.hidden(features)).permute(0, 2, 3, 1)
        else:
            hidden = self.hidden(features.flatten(1))
            rows = self.output(hidden if draws is None else _dropped(hidden, draws, p=self.config.dropout))
        return rows.reshape(images.shape[0], self.config.grid**2, num_numbers)

    def _split(self, numbers: Tensor) -> _Boxes:
        count = self.config.boxes
        boxes = numbers[..., : _NUMBERS * count].reshape(*numbers.shape[:2], count, _NUMBERS)
        return _Boxes(boxes[..., :2], boxes[..., 2:4], boxes[..., 4], numbers[..., _NUMBERS * count :])

    def _cells(self, like: Tensor) -> Tensor:
        """Return the column and row (S², 2) of each cell, row by row."""
        steps = torch.arange(self.config.grid, device=like.device, dtype=like.dtype)
        return torch.stack(torch.meshgrid(steps, steps, indexing="xy"), dim=-1).reshape(-1, 2)

    def _learned(self, batch: Batch, exact: torch.dtype) -> _Learned:
        grid, labels = self.config.grid, batch.targets["labels"]
        corners = batch.targets["boxes"].to(exact) / self.config.size.square
        centers = (corners[..., :2] + corners[..., 2:]) / 2
        column, row = (centers * grid).long().clamp(0, grid - 1).unbind(-1)  # a center may be on the border
        cell = F.one_hot(row * grid + column, grid**2).bool() & (labels >= 0)[..., None]  # (N, M, S²)
        keys = hashed_keys(batch.draws, labels.shape[1])[..., None].expand_as(cell)
        owner = keys.masked_fill(~cell, torch.iinfo(torch.int64).max).argmin(dim=1)  # (N, S²)
        return _Learned(
            has_object=cell.any(dim=1),
            corners=corners.gather(1, owner[..., None].expand(-1, -1, 4))[:, :, None],
            labels=labels.gather(1, owner).clamp(min=0),
        )


def _num_halvings(config: Yolo1Config, stride: int) -> int:
    """Return how many convolutions of stride 2 lead from the last map of the backbone to the grid."""
    side, grid = config.size.square, config.grid
    for num_halvings in range(6):
        if side == stride * grid * 2**num_halvings:
            return num_halvings
    raise UsageError(
        f"size={side}: {config.backbone} (stride {stride}) does not make {grid} x {grid} cells of it",
        advice=f"give size={grid * stride} or size={2 * grid * stride}, or another detector.grid",
    )


def _conv(inputs: int, outputs: int, *, stride: int = 1) -> nn.Sequential:
    """Return a 3 x 3 convolution and a leaky ReLU of slope 0.1 (2.2, equation 2), of variance 1."""
    convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1)
    nn.init.kaiming_normal_(convolution.weight, a=0.1)
    return nn.Sequential(convolution, activation_layer("leaky_relu"))


def _dropped(hidden: Tensor, draws: Tensor, *, p: float) -> Tensor:
    """Return `hidden` (N, H) with a share `p` of its units dropped. Each sample's draw decides which ones, so
    that they are the same however a step is split. `draws` itself chooses the objects of cells.
    """
    kept = hashed_keys(draws + 1, hidden.shape[1]) >= int(p * 2.0**63)
    return hidden * kept / (1 - p)


@torch.no_grad()
def _responsible(boxes: Tensor, objects: Tensor) -> tuple[Tensor, Tensor]:
    """Return the IoU (N, S², B) of boxes (N, S², B, 4) with the object (N, S², 1, 4) of their cell, and which
    box is responsible: that of greatest IoU or, if none overlaps the object, the nearest (authors' code).
    """
    low = torch.maximum(boxes[..., :2], objects[..., :2])
    high = torch.minimum(boxes[..., 2:], objects[..., 2:])
    shared = (high - low).clamp(min=0).prod(dim=-1)
    areas = [(corners[..., 2:] - corners[..., :2]).prod(dim=-1) for corners in (boxes, objects)]
    iou = shared / (areas[0] + areas[1] - shared).clamp(min=1e-9)
    nearness = -(_center_size(boxes) - _center_size(objects)).square().sum(dim=-1)
    overlaps = iou.amax(dim=-1, keepdim=True) > 0
    best = torch.where(overlaps, iou, nearness).argmax(dim=-1)
    return iou, F.one_hot(best, boxes.shape[2]).bool()


def _center_size(corners: Tensor) -> Tensor:
    low, high = corners.chunk(2, dim=-1)
    return torch.cat(((low + high) / 2, high - low), dim=-1)


def _sum_where(mask: Tensor, values: Tensor) -> Tensor:
    return values.masked_fill(~mask, 0).sum()
