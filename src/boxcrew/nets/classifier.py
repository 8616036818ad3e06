"""Classifiers: a body with features and a linear head, and the names of its tensors for loading weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from boxcrew.core.errors import UsageError, first_line
from boxcrew.core.registry import suggest
from boxcrew.nets.layers import Normalize
from boxcrew.nets.network import ClassRows, Network
from boxcrew.nets.timm_networks import timm


class ClassifierNet(Network):
    """A `body` with `features` and a linear `head`; images, uint8 (B, C, H, W), are normalized first."""

    full_backbone = True

    def __init__(
        self,
        body: nn.Module,
        classes: tuple[str, ...],
        normalize: Normalize | None,
        encoding: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(classes, encoding)
        self.body = body
        self.normalize = normalize

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores before softmax (B, C)."""
        scores: Tensor = self.body(self.normalized(inputs))
        return scores

    def features(self, inputs: Tensor) -> Tensor:
        """Return the features (B, D) that the head scores."""
        features: Tensor = self.body.features(self.normalized(inputs))  # type: ignore[operator]
        return features

    def normalized(self, inputs: Tensor) -> Tensor:
        return inputs if self.normalize is None else self.normalize(inputs)

    def class_tensors(self) -> Mapping[str, ClassRows]:
        head = "body.reader.head" if isinstance(self.body, Rows) else "body.head"
        return dict.fromkeys((f"{head}.weight", f"{head}.bias"), ClassRows())

    def token_tensors(self) -> tuple[str, ...]:
        return ("body.embedding.weight",) if "alphabet" in self.encoding else ()

    def backbone_prefix(self) -> str | None:
        return "body.backbone." if isinstance(self.body, TimmBody) else None

    def normalization(self) -> Normalize | None:
        return self.normalize

    def expected_normalization(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        assert isinstance(self.body, TimmBody)
        settings = self.body.backbone.pretrained_cfg
        return tuple(settings["mean"]), tuple(settings["std"])


class Rows(nn.Module):
    """A network for sequences that reads an image row by row, from the top."""

    def __init__(self, reader: nn.Module) -> None:
        super().__init__()
        self.reader = reader

    @property
    def head(self) -> nn.Module:
        return self.reader.get_submodule("head")

    def features(self, images: Tensor) -> Tensor:
        features: Tensor = self.reader.features(images.transpose(1, 2).flatten(2))  # type: ignore[operator]
        return features

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.reader(images.transpose(1, 2).flatten(2))  # from (B, C, H, W) to (B, H, C * W)
        return scores


class TimmBody(nn.Module):
    """A timm network with a new head for other classes."""

    def __init__(
        self, name: str, num_classes: int, *, shape: tuple[int, int, int], dropout: float, drop_path: float
    ) -> None:
        """Build it for images of `shape`: height, width, channels."""
        super().__init__()
        if name not in (known := timm.list_models()):
            raise UsageError(f"net.backbone={name}: timm has no such model; {suggest(name, known)}")
        with torch.device("meta"):
            _require_fit(_backbone(name, shape, drop_path=drop_path), name, shape)
        self.backbone = _backbone(name, shape, drop_path=drop_path)
        self.dropout = nn.Dropout(dropout)
        # Some networks have layers after the maps that `num_features` counts.
        width = getattr(self.backbone, "head_hidden_size", self.backbone.num_features)
        self.head = nn.Linear(width, num_classes)

    def features(self, images: Tensor) -> Tensor:
        features: Tensor = self.backbone(images)
        return features

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.dropout(self.features(images)))
        return scores


def _backbone(name: str, shape: tuple[int, int, int], *, drop_path: float) -> Any:
    options: dict[str, Any] = {"drop_path_rate": drop_path} if drop_path > 0 else {}
    settings = timm.get_pretrained_cfg(name)
    if settings is not None and settings.fixed_input_size:  # such as transformers with position embeddings
        height, width, _ = shape
        options["img_size"] = height if height == width else (height, width)  # some accept squares only
    try:
        return timm.create_model(name, pretrained=False, num_classes=0, in_chans=shape[2], **options)
    except TypeError as error:
        if "drop_path_rate" not in str(error):
            raise
        raise UsageError(
            f"net.drop_path={drop_path:g}: {name} has no residual branches to drop",
            advice="net.drop_path=0, or another net.backbone=",
        ) from None


def _require_fit(backbone: nn.Module, name: str, shape: tuple[int, int, int]) -> None:
    """Check that the network takes images of this shape, by a forward pass without data."""
    height, width, channels = shape
    try:
        backbone.eval()(torch.empty(1, channels, height, width, device="meta"))
    except (AssertionError, RuntimeError) as error:
        raise UsageError(
            f"net.backbone={name}: does not take images of {width} x {height}: {first_line(error)}",
            advice="a larger size=, or another net.backbone=",
        ) from None
