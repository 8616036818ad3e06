"""A residual convolutional network for small images."""

from __future__ import annotations

from dataclasses import dataclass

from timm.layers import DropPath
from torch import Tensor, nn

from boxcrew.nets.layers import Activation, SingleCellNorm, activation_layer

LEAST_SIZE = 8  # pixels a side; three stages leave one of them
_LARGE = 40  # pixels a side from which on the first convolution halves the image


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The settings of a network's residual blocks."""

    width: int = 32  # channels of the first stage
    depth: int = 1  # blocks of a stage
    activation: Activation = "relu"
    drop_path: float = 0.0  # probability of dropping the last block; earlier ones are dropped less often

    def build(self) -> list[nn.Sequential]:
        stages, inputs = [], self.width
        for stage, outputs in enumerate((self.width, 2 * self.width, 4 * self.width)):
            blocks = []
            for block in range(self.depth):
                # Linear decay of what survives (Huang et al. 2016, equation 4).
                p = self.drop_path * (stage * self.depth + block + 1) / (3 * self.depth)
                blocks.append(ResidualBlock(inputs, outputs, activation=self.activation, drop_path=p))
                inputs = outputs
            stages.append(nn.Sequential(*blocks))
        return stages


class SmallCnn(nn.Module):
    """Three stages of residual blocks, each at half the size and twice the width of the one before."""

    def __init__(
        self, channels: int, size: int, num_classes: int, stages: Stages, *, dropout: float = 0.0
    ) -> None:
        """Build it for images whose shorter side has `size` pixels, at least LEAST_SIZE."""
        super().__init__()
        stride = 1 if size < _LARGE else 2
        self.convolution = nn.Conv2d(channels, stages.width, 3, stride=stride, padding=1, bias=False)
        self.norm = SingleCellNorm(stages.width)
        self.activation = activation_layer(stages.activation)
        self.pooling = nn.MaxPool2d(2)
        self.stages = nn.ModuleList(stages.build())
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(4 * stages.width, num_classes)

    def features(self, images: Tensor) -> Tensor:
        """Map images (B, channels, H, W) of about unit size to features (B, 4 * width)."""
        maps = self.activation(self.norm(self.convolution(images)))
        for stage in self.stages:
            maps = stage(self.pooling(maps))
        means: Tensor = maps.mean(dim=(2, 3))
        return means

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, channels, H, W) of about unit size to scores before softmax (B, C)."""
        scores: Tensor = self.head(self.dropout(self.features(images)))
        return scores


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut around them (He et al. 2016, figure 2)."""

    def __init__(self, inputs: int, outputs: int, *, activation: Activation, drop_path: float) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.first_norm = SingleCellNorm(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = SingleCellNorm(outputs)
        self.drop_path = DropPath(drop_path)
        self.activation = activation_layer(activation)
        self.shortcut = nn.Sequential()
        if inputs != outputs:
            self.shortcut.extend([nn.Conv2d(inputs, outputs, 1, bias=False), SingleCellNorm(outputs)])

    def forward(self, maps: Tensor) -> Tensor:
        inner = self.activation(self.first_norm(self.first(maps)))
        inner = self.second_norm(self.second(inner))
        result: Tensor = self.activation(self.shortcut(maps) + self.drop_path(inner))
        return result
