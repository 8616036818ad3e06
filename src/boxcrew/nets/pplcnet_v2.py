"""PP-LCNetV2 (PaddleClas 2022): a backbone for CPUs, of wide layers without inverted bottlenecks.

It is registered with timm as `pplcnetv2_base`, so that whatever takes a timm network takes it. Each block is
a depthwise and a 1 x 1 convolution. PaddleClas trains the depthwise ones of the later stages as sums of
several kernels; here they are as its published model has them, one kernel with a bias.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import torch
from timm.models import build_model_with_cfg, register_model
from torch import Tensor, nn

from boxcrew.core.errors import ModelError
from boxcrew.nets.weights import State

NAME = "pplcnetv2_base"

_STEM = 32
_STAGES = ((64, 1, 1), (128, 2, 2), (256, 2, 2), (512, 6, 2), (1024, 2, 2))
"""Channels, blocks and stride of each stage."""

_ATTENTION = 3  # the stage whose blocks have squeeze-and-excitation and a narrow layer between their two
_FIRST_WIDE = 3  # the first stage with 5 x 5 kernels
_FEATURES = 1280

default_cfgs = {
    NAME: {
        "num_classes": 1000,
        "input_size": (3, 224, 224),
        "mean": (0.485, 0.456, 0.406),
        "std": (0.229, 0.224, 0.225),
        "first_conv": "conv_stem",
        "classifier": "classifier",
    }
}


def _norm_relu(channels: int) -> list[nn.Module]:
    return [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]


class _Attention(nn.Module):
    """Squeeze-and-excitation (Hu et al. 2018)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv_reduce = nn.Conv2d(channels, channels // 4, 1)
        self.conv_expand = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, features: Tensor) -> Tensor:
        hidden = torch.relu(self.conv_reduce(features.mean(dim=(2, 3), keepdim=True)))
        weights: Tensor = self.conv_expand(hidden).sigmoid()
        return features * weights


class _Block(nn.Module):
    """A depthwise convolution, attention if asked for, and one or two 1 x 1 convolutions."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, stage: int) -> None:
        super().__init__()
        wide, attention = stage >= _FIRST_WIDE, stage == _ATTENTION
        kernel = 5 if wide else 3
        # Where PaddleClas has merged its kernels, their BatchNorms are part of the bias.
        depthwise = nn.Conv2d(inputs, inputs, kernel, stride, kernel // 2, groups=inputs, bias=wide)
        self.depthwise = nn.Sequential(depthwise, *([nn.ReLU(inplace=True)] if wide else _norm_relu(inputs)))
        self.attention = _Attention(inputs) if attention else nn.Identity()
        widths = (inputs, outputs // 2, outputs) if attention else (inputs, outputs)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Conv2d(before, after, 1, bias=False), *_norm_relu(after)]
        self.pointwise = nn.Sequential(*layers)
        self.has_shortcut = stage == len(_STAGES) - 1 and stride == 1 and inputs == outputs

    def forward(self, features: Tensor) -> Tensor:
        result: Tensor = self.pointwise(self.attention(self.depthwise(features)))
        return features + result if self.has_shortcut else result


class PpLcNetV2(nn.Module):
    """A classifier with the arguments and attributes that timm expects of its networks."""

    def __init__(self, num_classes: int = 1000, in_chans: int = 3, drop_rate: float = 0.0) -> None:
        super().__init__()
        self.num_classes, self.num_features, self.drop_rate = num_classes, _STAGES[-1][0], drop_rate
        self.head_hidden_size = _FEATURES
        self.conv_stem = nn.Sequential(nn.Conv2d(in_chans, _STEM, 3, 2, 1, bias=False), *_norm_relu(_STEM))
        inputs, reduction = _STEM, 2
        self.feature_info: list[dict[str, Any]] = []
        for stage, (channels, num_blocks, stride) in enumerate(_STAGES):
            blocks = []
            for block in range(num_blocks):
                blocks.append(_Block(inputs, channels, stride=stride if block == 0 else 1, stage=stage))
                inputs = channels
            name, reduction = f"stage{stage}", reduction * stride
            self.add_module(name, nn.Sequential(*blocks))
            self.feature_info.append({"num_chs": channels, "reduction": reduction, "module": name})
        self.conv_head = nn.Conv2d(inputs, _FEATURES, 1, bias=False)
        self.classifier = nn.Linear(_FEATURES, num_classes) if num_classes else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """Return scores (B, num_classes), or features (B, 1280) if there are no classes."""
        features: Tensor = self.conv_stem(images)
        for stage in range(len(_STAGES)):
            features = self.get_submodule(f"stage{stage}")(features)
        pooled = torch.relu(self.conv_head(features.mean(dim=(2, 3), keepdim=True))).flatten(1)
        scores: Tensor = self.classifier(nn.functional.dropout(pooled, self.drop_rate, self.training))
        return scores


@register_model  # type: ignore[untyped-decorator]
def pplcnetv2_base(pretrained: bool = False, **options: Any) -> nn.Module:  # noqa: FBT001, FBT002 - timm's
    """Return PP-LCNetV2-base, or its feature maps with `features_only=True`."""
    network: nn.Module = build_model_with_cfg(PpLcNetV2, NAME, pretrained, **options)
    return network


def pplcnetv2_from_paddle(state: State) -> State:
    """Return the state of PaddleClas' exported PP-LCNetV2-base under the names here."""
    numbers = sorted(int(match[1]) for name in state if (match := re.fullmatch(r"conv2d_(\d+)\.w_0", name)))
    norms = sorted(
        int(match[1]) for name in state if (match := re.fullmatch(r"batch_norm2d_(\d+)\.w_0", name))
    )
    with torch.device("meta"):
        network = PpLcNetV2()
    wanted = network.state_dict()
    convolutions = [name for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d)]
    own_norms = [name for name, layer in network.named_modules() if isinstance(layer, nn.BatchNorm2d)]
    if (len(numbers), len(norms)) != (len(convolutions), len(own_norms)):
        raise ModelError(
            f"the file has {len(numbers)} convolutions and {len(norms)} BatchNorms, and PP-LCNetV2-base "
            f"{len(convolutions)} and {len(own_norms)}"
        )
    converted: State = {}
    for name, number in zip(convolutions, numbers, strict=True):
        converted[f"{name}.weight"] = state[f"conv2d_{number}.w_0"]
        if f"{name}.bias" in wanted:
            converted[f"{name}.bias"] = state[f"conv2d_{number}.b_0"]
    for name, number in zip(own_norms, norms, strict=True):
        for ours, theirs in (
            ("weight", "w_0"),
            ("bias", "b_0"),
            ("running_mean", "w_1"),
            ("running_var", "w_2"),
        ):
            converted[f"{name}.{ours}"] = state[f"batch_norm2d_{number}.{theirs}"]
    converted["classifier.weight"] = state["linear_0.w_0"].T.contiguous()
    converted["classifier.bias"] = state["linear_0.b_0"]
    return converted
