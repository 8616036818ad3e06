"""The facts about data that decide a network. They are stored with weights as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from boxcrew.data.examples.example_set import InputKind
from boxcrew.nets.layers import Normalize


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """The facts that every kind of data has."""

    classes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the known facts; `from_json` makes equal ones of them."""
        known = {name: value for name, value in vars(self).items() if value is not None}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in known.items()}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Self:
        known = {field.name: facts[field.name] for field in fields(cls) if field.name in facts}
        return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in known.items()})


@dataclass(frozen=True, kw_only=True)
class ExampleFacts(DataFacts):
    """The facts about examples."""

    kind: InputKind
    shape: tuple[int, ...]  # of an input
    encoding: Mapping[str, Any]  # how rows or texts become inputs: JSON values
    mean: tuple[float, ...] | None = None  # of each channel, of pixels 0..1; None: no images
    std: tuple[float, ...] | None = None
    counts: tuple[int, ...] | None = None  # training examples of each class; None if they do not matter

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        height, width, channels = self.shape
        return height, width, channels

    def normalization(self) -> Normalize | None:
        """Return the layer that normalizes pixels; None if inputs are not images."""
        return None if self.mean is None or self.std is None else Normalize(self.mean, self.std)
