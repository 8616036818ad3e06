"""Sets of examples that have one label each, or none: pictures, rows of numbers, texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from boxcrew.core.errors import DataError
from boxcrew.core.registry import Registry
from boxcrew.core.types import Ints
from boxcrew.data.checks.problem import Problem
from boxcrew.data.formats import Format, format_of

Array = npt.NDArray[Any]

Kind = Literal["pictures", "numbers", "tokens"]
"""What an input is: uint8 (height, width, channels), float32 (features,) or int64 (length,)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Fetched:
    """Inputs of one shape, joined, of those that could be read."""

    inputs: Array  # (n, …)
    labels: Ints  # (n,)
    indices: Ints  # (n,) of the examples, among those asked for, in their order
    skipped: tuple[str, ...] = ()  # what could not be read, in words


class Examples(ABC):
    """The examples of one split. It is sent to loader processes: what it holds is shared with them."""

    labels: Ints  # (N,) 0..C-1; zeros where there is nothing to tell apart

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def key(self, index: int) -> str:
        """Names the example in messages and files; unique in its set."""

    @abstractmethod
    def fetch(self, indices: Sequence[int] | Ints) -> Fetched:
        """The inputs of these, in this order."""

    @property
    def input_bytes(self) -> int:
        """Of main memory, what one more example takes where it is read and kept; 0 where all are there."""
        return 0

    @property
    def kept_bytes(self) -> int:
        """Of main memory that all take which are kept once they have been read."""
        return 0

    def keeping(self, num_bytes: int) -> Examples:  # noqa: ARG002 - where all are there
        """The same, with so many bytes for those that have been read."""
        return self

    def some(self, num: int) -> Examples:
        """So many, or all where there are no more, always the same: one of each of as many equal stretches,
        for sets are often in the order of their classes, or these come in turns.
        """
        count = min(num, len(self))
        ends = np.arange(count + 1) * len(self) // count
        places = np.random.default_rng(0).integers(ends[:-1], ends[1:])
        return Relabelled(self, self.labels[places], places)


class Relabelled(Examples):
    """All or some of others, with labels of their own."""

    def __init__(self, examples: Examples, labels: Ints, places: Ints | None = None) -> None:
        """`places`: of those that are meant among the others, growing; None: all."""
        self._examples = examples
        self.labels = labels
        self._places = np.arange(len(examples)) if places is None else places
        assert len(self._places) == len(labels)

    def key(self, index: int) -> str:
        return self._examples.key(int(self._places[index]))

    def fetch(self, indices: Sequence[int] | Ints) -> Fetched:
        found = self._examples.fetch(self._places[np.asarray(indices, dtype=np.int64)])
        mine = np.searchsorted(self._places, found.indices)
        return replace(found, labels=self.labels[mine], indices=mine)

    @property
    def input_bytes(self) -> int:
        return self._examples.input_bytes

    @property
    def kept_bytes(self) -> int:
        return self._examples.kept_bytes * len(self) // max(1, len(self._examples))

    def keeping(self, num_bytes: int) -> Relabelled:
        return Relabelled(self._examples.keeping(num_bytes), self.labels, self._places)


class InMemory(Examples):
    """Of inputs that are there already."""

    def __init__(self, inputs: Array, labels: Ints, keys: Sequence[str] | str) -> None:
        """`keys`: one each, or what all begin with, to be numbered from 0."""
        assert len(inputs) == len(labels)
        self.inputs = inputs
        self.labels = labels
        self._keys = keys

    def key(self, index: int) -> str:
        return f"{self._keys}[{index}]" if isinstance(self._keys, str) else self._keys[index]

    def fetch(self, indices: Sequence[int] | Ints) -> Fetched:
        chosen = np.asarray(indices, dtype=np.int64)
        return Fetched(inputs=self.inputs[chosen], labels=self.labels[chosen], indices=chosen)


class Joined(Examples):
    """Several, one after the other, to be looked at in turn."""

    def __init__(self, parts: Sequence[Examples]) -> None:
        self._parts = parts
        self._begins = np.cumsum([0, *map(len, parts)])
        self.labels = np.concatenate([part.labels for part in parts])

    def key(self, index: int) -> str:
        place = int(np.searchsorted(self._begins, index, side="right")) - 1
        return self._parts[place].key(index - int(self._begins[place]))

    def fetch(self, indices: Sequence[int] | Ints) -> Fetched:
        chosen = np.asarray(indices, dtype=np.int64)
        assert (np.diff(chosen) > 0).all(), "in turn"
        pieces = np.split(chosen, np.searchsorted(chosen, self._begins[1:-1]))
        found = [
            (begin, part.fetch(piece - begin))
            for begin, part, piece in zip(self._begins.tolist(), self._parts, pieces, strict=False)
            if len(piece)
        ]
        return Fetched(
            inputs=np.concatenate([one.inputs for _, one in found]),
            labels=np.concatenate([one.labels for _, one in found]),
            indices=np.concatenate([one.indices + begin for begin, one in found]),
            skipped=tuple(skipped for _, one in found for skipped in one.skipped),
        )


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How examples are to be given, where that is open."""

    size: int | None = None  # side of pictures; None: their own where all have the same up to 256, else 32
    shape: tuple[int, int, int] | None = None  # of pictures, where it is known, whatever their size
    length: int = 128  # of texts, in characters
    label: str | None = None  # the column that is to be learnt; None: the last
    seed: int = 0  # for splits, where there are none
    workers: int = 1  # threads that may look at files
    meaning: Mapping[str, Any] | None = None  # that of a set before, whose inputs these are to be like
    evaluated: bool = False  # by a network that is there already: nothing needs to be there to train on


@dataclass(frozen=True, kw_only=True, eq=False)
class ExampleSet:
    """Opened: something wrong with single examples is a `Problem`; a set of which nothing is left raises
    `DataError`.
    """

    root: Path
    format: str
    kind: Kind
    classes: tuple[str, ...]  # empty where there is nothing to tell apart
    shape: tuple[int, ...]  # of one input
    splits: Mapping[str, Examples]  # the keys are among SPLITS; "train" is one of them
    problems: tuple[Problem, ...] = ()
    meaning: Mapping[str, Any] = field(default_factory=dict)
    """What else must be known to make inputs of the same kind from new data, as JSON values: columns with
    their means and deviations, an alphabet."""

    def split(self, name: str) -> Examples:
        if name not in self.splits:
            why = [str(problem) for problem in self.problems if problem.at == name]
            raise DataError(
                f"{self.root}: has no split {name!r}",
                advice="; ".join([f"it has: {', '.join(self.splits)}", *why]),
            )
        return self.splits[name]

    def whole(self) -> Examples:
        """Those of all splits."""
        return Joined(tuple(self.splits.values()))

    def counts(self, part: Examples) -> dict[str, int]:
        """Examples of each class in a split."""
        found = np.bincount(part.labels, minlength=len(self.classes)).tolist()
        return dict(zip(self.classes, found, strict=False))  # of none where there are no classes

    def report(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "root": str(self.root),
            "format": self.format,
            "kind": self.kind,
            "shape": list(self.shape),
            "classes": list(self.classes),
            "splits": {
                name: {"examples": len(part), "by_class": self.counts(part)}
                for name, part in self.splits.items()
            },
            "problems": [problem.to_json() for problem in self.problems],
        }


class ExampleFormat(Format):
    """A way in which such sets are stored."""

    name: ClassVar[str]  # the name it is registered under

    @classmethod
    @abstractmethod
    def open(cls, path: Path, wanted: Wanted) -> ExampleSet: ...


EXAMPLE_FORMATS: Registry[type[ExampleFormat]] = Registry("data format", "boxcrew.data.examples.formats")
"""Members say `@EXAMPLE_FORMATS.register("idx")` in `data/examples/formats/idx.py`, and so on."""


def open_examples(path: str | Path, wanted: Wanted, *, format: str = "auto") -> ExampleSet:
    """Opens the set at `path` (or an embedded one, by its name), detecting its format unless told."""
    return format_of(path, EXAMPLE_FORMATS, named=format).open(Path(path), wanted)
