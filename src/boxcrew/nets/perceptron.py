"""A fully connected network (multilayer perceptron)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import Tensor, nn

from boxcrew.nets.layers import Activation, SingleCellNorm, activation_layer


class Perceptron(nn.Module):
    """Hidden layers of the given widths, each of linear, optional BatchNorm, activation and dropout."""

    def __init__(
        self,
        num_inputs: int,
        num_classes: int,
        widths: Sequence[int],
        *,
        activation: Activation = "relu",
        dropout: float = 0.0,
        batch_norm: bool = False,
    ) -> None:
        """Build it for `num_inputs` values a sample, whatever their shape. No widths: a linear classifier."""
        super().__init__()
        sizes = (num_inputs, *widths)
        self.hidden = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Linear(inputs, outputs, bias=not batch_norm),
                    *([SingleCellNorm(outputs)] if batch_norm else []),
                    activation_layer(activation),
                    *([nn.Dropout(dropout)] if dropout > 0 else []),
                )
                for inputs, outputs in itertools.pairwise(sizes)
            )
        )
        self.head = nn.Linear(sizes[-1], num_classes)

    def features(self, inputs: Tensor) -> Tensor:
        """Map inputs (B, …) of about unit size to features (B, last width)."""
        hidden: Tensor = self.hidden(inputs.flatten(1))
        return hidden

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs (B, …) of about unit size to scores before softmax (B, C)."""
        scores: Tensor = self.head(self.features(inputs))
        return scores
