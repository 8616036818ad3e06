"""The two maps that torchvision's detectors take from MobileNets, both at the coarsest stride."""

from __future__ import annotations

from torch import Tensor, nn

from boxcrew.core.errors import UsageError
from boxcrew.nets.backbones import Backbone


class LateMaps(Backbone):
    """A timm network of blocks that returns the map of the first block at its coarsest stride, and its last
    map, which has the same stride.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, finest_stride=2)
        stages: nn.ModuleList | None = getattr(self.body, "blocks", None)
        strided = [] if stages is None else [s for s, stage in enumerate(stages) if _halves(stage)]
        if stages is None or not strided:
            raise UsageError(
                f"detector.backbone={name}: has no blocks, so detector.maps=late is not for it",
                advice="choose a MobileNet or an EfficientNet, or detector.maps=strides",
            )
        self._first_late = strided[-1]
        self.strides = [self.strides[-1]] * 2
        first_block = next(stages[self._first_late].children())
        projection = [layer for layer in first_block.modules() if isinstance(layer, nn.Conv2d)]
        self.channels = [projection[-1].out_channels, self.channels[-1]]

    def forward(self, images: Tensor) -> list[Tensor]:
        features = images
        for name, layer in self.body.named_children():
            if name == "blocks":
                break
            features = layer(features)
        for stage in self.body.blocks[: self._first_late]:
            features = stage(features)
        first, *others = self.body.blocks[self._first_late]
        features = earlier = first(features)
        for block in (*others, *self.body.blocks[self._first_late + 1 :]):
            features = block(features)
        return [earlier, features]


def _halves(stage: nn.Module) -> bool:
    """Return whether a stage makes its map smaller."""
    layers = (layer for layer in stage.modules() if isinstance(layer, nn.Conv2d))
    return any(layer.stride[0] > 1 for layer in layers)
