"""Feature extractors from timm that return a list of maps at growing strides."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from boxcrew.core.errors import UsageError
from boxcrew.core.registry import suggest

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Backbone(nn.Module):
    """A timm network that returns feature maps, with random weights; `train/init.py` loads pretrained ones.
    `forward` returns the maps of `strides`, finest first; `channels` are their depths. Layers that only make
    maps beyond the first `num_maps` are left out.
    """

    def __init__(
        self,
        name: str,
        *,
        finest_stride: int,
        num_maps: int | None = None,
        setting: str = "detector.backbone",
    ) -> None:
        """Build it; `setting` is the one that names it, for messages."""
        from boxcrew.nets.timm_networks import timm

        super().__init__()
        if not timm.is_model(name):
            hint = suggest(name, timm.list_models())
            raise UsageError(f"{setting}={name}: no such timm network; {hint}")
        try:
            with torch.device("meta"):  # only to ask for its strides
                strides = timm.create_model(name, features_only=True).feature_info.reduction()
        except (RuntimeError, AttributeError, AssertionError) as error:
            problem = f"has no feature maps to attach heads to: {error}"
            raise UsageError(f"{setting}={name}: {problem}") from None
        levels = [i for i, stride in enumerate(strides) if stride >= finest_stride]
        if len(levels) < min(2, num_maps or 2):
            raise UsageError(
                f"{setting}={name}: has strides {strides}, fewer than two from {finest_stride} on",
                advice="choose another backbone or a smaller detector.finest_stride",
            )
        levels = levels[:num_maps]
        self.body = timm.create_model(name, features_only=True, pretrained=False, out_indices=levels)
        _drop_later_blocks(self.body)
        self.name = name
        self.strides: list[int] = self.body.feature_info.reduction()
        self.channels: list[int] = self.body.feature_info.channels()

    def forward(self, images: Tensor) -> list[Tensor]:
        maps: list[Tensor] = self.body(images)
        # Channels-last networks such as Swin declare it; some others declare nothing.
        if getattr(self.body, "output_fmt", "NCHW") == "NHWC":
            return [features.permute(0, 3, 1, 2) for features in maps]
        return maps

    def expected_normalization(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return mean and deviation of the 0..1 pixels that timm's weights for this network expect."""
        from boxcrew.nets.timm_networks import timm

        settings = timm.get_pretrained_cfg(self.name)
        return (settings.mean, settings.std) if settings else (IMAGENET_MEAN, IMAGENET_STD)


def _drop_later_blocks(body: nn.Module) -> None:
    """Delete the blocks after the last map that is returned: some timm networks keep and compute them."""
    last = body.feature_info.module_name()[-1].split(".")  # type: ignore[operator, union-attr]
    blocks = getattr(body, "blocks", None)
    if last[0] == "blocks" and isinstance(blocks, nn.Sequential):
        del blocks[int(last[1]) + 1 :]
