"""The settings of the networks for images, tables and texts, and how each is built."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from boxcrew.core.config import ChosenBy, Config, commas
from boxcrew.core.errors import UsageError
from boxcrew.core.registry import suggest
from boxcrew.data.examples.alphabet import num_tokens
from boxcrew.nets.classifier import ClassifierNet, Rows, TimmBody
from boxcrew.nets.initialization import Scheme, initialize
from boxcrew.nets.layers import Activation
from boxcrew.nets.perceptron import Perceptron
from boxcrew.nets.recurrent import Cells, SequenceClassifier
from boxcrew.nets.small_cnn import LEAST_SIZE, SmallCnn, Stages
from boxcrew.tasks.facts import ExampleFacts

Fraction = Annotated[float, Field(ge=0, lt=1)]


class NetConfig(Config):
    """The settings that all networks have."""

    group = "net"
    shorthand = "name"

    name: str
    """Network."""
    initializer: Scheme = "auto"
    """Initialization of the weights."""
    dropout: Fraction = 0.0
    """Dropout probability."""

    def build(self, facts: ExampleFacts) -> ClassifierNet:
        body = self.body(facts)
        initialize(body, self.initializer)
        return ClassifierNet(body, facts.classes, facts.normalization(), facts.encoding)

    @abstractmethod
    def body(self, facts: ExampleFacts) -> nn.Module:
        """Return the layers from inputs to class scores, not yet initialized."""


class FcConfig(NetConfig):
    """A network of fully connected layers."""

    name: Literal["fc"] = "fc"
    widths: Annotated[tuple[Annotated[int, Field(ge=1)], ...], commas] = (512, 256)
    """Widths of the hidden layers."""
    activation: Activation = "relu"
    """Activation function."""
    batch_norm: bool = False
    """Use BatchNorm after each hidden layer."""

    def body(self, facts: ExampleFacts) -> nn.Module:
        _refuse(self.name, facts, "tokens")
        return Perceptron(
            math.prod(facts.shape),
            len(facts.classes),
            self.widths,
            activation=self.activation,
            dropout=self.dropout,
            batch_norm=self.batch_norm,
        )


class CnnConfig(NetConfig):
    """A small convolutional network."""

    name: Literal["cnn"] = "cnn"
    width: int = Field(default=32, ge=1)
    """Channels of the first stage."""
    depth: int = Field(default=1, ge=1)
    """Residual blocks of each stage."""
    activation: Activation = "relu"
    """Activation function."""
    drop_path: Fraction = 0.0
    """Probability that a residual branch is dropped (stochastic depth)."""

    def body(self, facts: ExampleFacts) -> nn.Module:
        _refuse(self.name, facts, "tokens", "numbers")
        height, width, channels = facts.shape
        size = min(height, width)
        if size < LEAST_SIZE:
            raise UsageError(
                f"net=cnn: the images are {width} x {height} pixels; each side needs at least {LEAST_SIZE}",
                advice=f"size={LEAST_SIZE} or more resizes them to squares of that side",
            )
        stages = Stages(
            width=self.width, depth=self.depth, activation=self.activation, drop_path=self.drop_path
        )
        return SmallCnn(channels, size, len(facts.classes), stages, dropout=self.dropout)


class TimmConfig(NetConfig):
    """Any network of the timm library."""

    name: Literal["timm"] = "timm"
    backbone: str = "tf_efficientnet_lite0"
    """Name of the network in timm."""
    drop_path: Fraction = 0.0
    """Probability that a residual branch is dropped (stochastic depth)."""

    def body(self, facts: ExampleFacts) -> nn.Module:
        _refuse(self.name, facts, "tokens", "numbers")
        dropped = {"dropout": self.dropout, "drop_path": self.drop_path}
        return TimmBody(self.backbone, len(facts.classes), shape=facts.image_shape, **dropped)


class RnnConfig(NetConfig):
    """A recurrent network, which reads texts by character and images by row."""

    name: Literal["rnn"] = "rnn"
    cells: Literal["lstm", "gru"] = "lstm"
    """Kind of recurrent cell."""
    hidden: int = Field(default=128, ge=1)
    """Units of each recurrent layer."""
    layers: int = Field(default=1, ge=1)
    """Recurrent layers."""
    embedding: int = Field(default=64, ge=1)
    """Size of a character's embedding."""
    bidirectional: bool = False
    """Read sequences from both ends."""
    tied: bool = False
    """Score characters by their own embeddings (language models)."""

    def recurrent_layers(self) -> Cells:
        return Cells(kind=self.cells, hidden=self.hidden, layers=self.layers, dropout=self.dropout)

    def body(self, facts: ExampleFacts) -> nn.Module:
        _refuse(self.name, facts, "numbers")
        is_text = facts.kind == "tokens"
        reader = SequenceClassifier(
            self.embedding if is_text else math.prod(facts.shape[1:]),
            len(facts.classes),
            self.recurrent_layers(),
            num_tokens=num_tokens(facts.encoding) if is_text else None,
            bidirectional=self.bidirectional,
        )
        return reader if is_text else Rows(reader)


def _refuse(name: str, facts: ExampleFacts, *kinds: str) -> None:
    if facts.kind in kinds:
        raise UsageError(
            f"net={name}: cannot read {facts.kind}",
            advice={"tokens": "use net=rnn for texts", "numbers": "use net=fc for tables"}[facts.kind],
        )


NETS: dict[str, type[NetConfig]] = {"fc": FcConfig, "cnn": CnnConfig, "timm": TimmConfig, "rnn": RnnConfig}


def net_config_class(name: str) -> type[NetConfig]:
    if name not in NETS:
        raise UsageError(f"net={name}: no such network; {suggest(name, list(NETS))}")
    return NETS[name]


def net_chosen(default: str) -> ChosenBy:
    """Return the annotation of a setting that chooses a network by its name."""
    return ChosenBy(setting="name", default=default, lookup=net_config_class, options=lambda: NETS)
