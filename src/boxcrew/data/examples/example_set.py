"""The types of labeled data sets: `ExampleSplit` (a split), `ExampleSet` and `ExampleFormat`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.registry import Registry
from boxcrew.core.storage.address import Url
from boxcrew.core.types import Bools, Ints
from boxcrew.data.checks.problem import Problem
from boxcrew.data.config import AS_THE_FORMAT_SAYS, BoxOptions
from boxcrew.data.formats import Format, format_of
from boxcrew.data.stored import local_or_packed

Array = npt.NDArray[Any]

InputKind = Literal["images", "numbers", "tokens"]
"""An input is uint8 (height, width, channels), float32 (features,) or int64 (length,)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Fetched:
    """The inputs and labels of the n samples that could be read, of those requested."""

    inputs: Array  # (n, …)
    labels: Ints  # (n,)
    indices: Ints  # (n,) of the samples in their split, in the requested order
    skipped: tuple[str, ...] = ()  # messages about what could not be read


class ExampleSplit(ABC):
    """The N samples of one split. Loader processes get a copy, forked or pickled."""

    labels: Ints  # (N,) 0..C-1; zeros if there are no classes

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def key(self, index: int) -> str:
        """Return the name of a sample in messages and files; unique in its set."""

    @abstractmethod
    def fetch(self, indices: Sequence[int] | Ints) -> Fetched:
        """Read these samples, in this order."""

    @property
    def input_bytes(self) -> int:
        """Bytes of main memory for one cached sample; 0 if all samples are in memory anyway."""
        return 0

    @property
    def cached_bytes(self) -> int:
        """Bytes of main memory for the cache once it is full."""
        return 0

    def with_cache(self, num_bytes: int) -> ExampleSplit:  # noqa: ARG002 - all are in memory
        """Return these samples with a cache of `num_bytes`."""
        return self

    def subset(self, num: int) -> ExampleSplit:
        """Return at most `num` samples, always the same: a random one of each of `num` equal stretches, since
        sets are often sorted by class, or their classes alternate.
        """
        count = min(num, len(self))
        ends = np.arange(count + 1) * len(self) // count
        indices = np.random.default_rng(0).integers(ends[:-1], ends[1:])
        return Relabeled(self, self.labels[indices], indices)


class Relabeled(ExampleSplit):
    """All or some samples of another split, with new labels."""

    def __init__(self, examples: ExampleSplit, labels: Ints, chosen: Ints | None = None) -> None:
        """Take the samples `chosen` (increasing indices into `examples`), or all if None."""
        self._examples, self.labels = examples, labels
        self._chosen = np.arange(len(examples)) if chosen is None else chosen
        assert len(self._chosen) == len(labels)

    def key(self, index: int) -> str:
        return self._examples.key(int(self._chosen[index]))

    def fetch(self, indices: Sequence[int] | Ints) -> Fetched:
        fetched = self._examples.fetch(self._chosen[np.asarray(indices, dtype=np.int64)])
        readable = np.searchsorted(self._chosen, fetched.indices)
        return replace(fetched, labels=self.labels[readable], indices=readable)

    @property
    def input_bytes(self) -> int:
        return self._examples.input_bytes

    @property
    def cached_bytes(self) -> int:
        return self._examples.cached_bytes * len(self) // max(1, len(self._examples))

    def with_cache(self, num_bytes: int) -> Relabeled:
        return Relabeled(self._examples.with_cache(num_bytes), self.labels, self._chosen)


class InMemory(ExampleSplit):
    """Samples whose inputs are an array in memory."""

    def __init__(self, inputs: Array, labels: Ints, keys: Sequence[str] | str) -> None:
        """Name the samples by `keys`, or by one prefix and their index."""
        assert len(inputs) == len(labels)
        self.inputs, self.labels, self.keys = inputs, labels, keys

    def key(self, index: int) -> str:
        return f"{self.keys}[{index}]" if isinstance(self.keys, str) else self.keys[index]

    def all_keys(self) -> list[str]:
        return [self.key(index) for index in range(len(self))]

    def select(self, mask: Bools) -> InMemory:
        if mask.all():
            return self
        return InMemory(self.inputs[mask], self.labels[mask], [*compress(self.all_keys(), mask)])

    def with_labels(self, labels: Ints) -> InMemory:
        return InMemory(self.inputs, labels, self.keys)

    def fetch(self, indices: Sequence[int] | Ints) -> Fetched:
        chosen = np.asarray(indices, dtype=np.int64)
        return Fetched(inputs=self.inputs[chosen], labels=self.labels[chosen], indices=chosen)


class ConcatExamples(ExampleSplit):
    """The samples of several splits, one after the other, to be fetched in increasing order."""

    def __init__(self, splits: Sequence[ExampleSplit]) -> None:
        self._splits = splits
        self._starts = np.cumsum([0, *map(len, splits)])
        self.labels = np.concatenate([examples.labels for examples in splits])

    def key(self, index: int) -> str:
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._splits[number].key(index - int(self._starts[number]))

    def fetch(self, indices: Sequence[int] | Ints) -> Fetched:
        chosen = np.asarray(indices, dtype=np.int64)
        assert (np.diff(chosen) > 0).all(), "indices must increase"
        groups = np.split(chosen, np.searchsorted(chosen, self._starts[1:-1]))
        triples = zip(self._starts.tolist(), self._splits, groups, strict=False)
        fetched = [(start, split.fetch(group - start)) for start, split, group in triples if len(group)]
        return Fetched(
            inputs=np.concatenate([part.inputs for _, part in fetched]),
            labels=np.concatenate([part.labels for _, part in fetched]),
            indices=np.concatenate([part.indices + start for start, part in fetched]),
            skipped=tuple(message for _, part in fetched for message in part.skipped),
        )


@dataclass(frozen=True, kw_only=True)
class ExampleOptions:
    """The choices that are open when a set is opened."""

    size: int | None = None  # side of images; None: their own if all agree and are at most 256, else 32
    shape: tuple[int, int, int] | None = None  # of images: overrides `size`
    length: int = 128  # of texts, in characters
    label: str | None = None  # the column with the classes; None: the last
    seed: int = 0  # of the validation split, if one has to be made
    workers: int = 1  # threads that read files
    encoding: Mapping[str, Any] | None = None  # of the set a network was trained on: inputs are made alike
    eval_only: bool = False  # the set is only evaluated: it needs no training split
    boxes: BoxOptions = AS_THE_FORMAT_SAYS  # of a detection set whose objects are the samples


@dataclass(frozen=True, eq=False)
class ExampleSet:
    """An opened data set. Samples that cannot be used are `problems`; a set with no usable sample raises
    `DataError`.
    """

    root: Path
    format: str
    kind: InputKind
    classes: tuple[str, ...]  # empty if samples have no classes
    shape: tuple[int, ...]  # of one input
    splits: Mapping[str, ExampleSplit]  # the keys are among SPLITS; "train" is one of them
    _: KW_ONLY
    problems: tuple[Problem, ...] = ()
    encoding: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that turn new data into the same inputs: table columns with means and deviations, or a
    vocabulary. Stored with a network's weights, under the key `encoding`."""

    def split(self, name: str) -> ExampleSplit:
        if name not in self.splits:
            reasons = [str(problem) for problem in self.problems if problem.at == name]
            message = f"{self.root}: has no split {name!r}"
            raise DataError(message, advice="; ".join([f"it has: {', '.join(self.splits)}", *reasons]))
        return self.splits[name]

    def all_examples(self) -> ExampleSplit:
        return ConcatExamples(tuple(self.splits.values()))

    def counts(self, examples: ExampleSplit) -> dict[str, int]:
        """Return the number of samples of each class in a split; empty if there are no classes."""
        counts = np.bincount(examples.labels, minlength=len(self.classes)).tolist()
        return dict(zip(self.classes, counts, strict=False))  # without classes all labels are 0

    def report(self) -> dict[str, Any]:
        """Return the contents of the data report, as JSON values."""
        splits = {
            name: {"examples": len(examples), "by_class": self.counts(examples)}
            for name, examples in self.splits.items()
        }
        what = {"root": str(self.root), "format": self.format, "kind": self.kind, "shape": list(self.shape)}
        problems = [problem.to_json() for problem in self.problems]
        return {**what, "classes": list(self.classes), "splits": splits, "problems": problems}


class ExampleFormat(Format):
    """A storage format of labeled data sets."""

    name: ClassVar[str]  # the name it is registered under
    reads_boxes: ClassVar[bool] = False  # from annotation files

    @classmethod
    def check_detected(cls, path: Path) -> None:
        """Raise `DataError` if the format was only detected, and the set is more likely of an unknown one."""

    @classmethod
    @abstractmethod
    def open(cls, path: Path, options: ExampleOptions) -> ExampleSet: ...


EXAMPLE_FORMATS: Registry[type[ExampleFormat]] = Registry("data format", "boxcrew.data.examples.formats")
"""A file in `data/examples/formats/` registers its class: `@EXAMPLE_FORMATS.register("idx")`."""


def open_examples(path: str | Path, options: ExampleOptions, *, format: str = "auto") -> ExampleSet:
    """Open the set at `path`, or an embedded set by its name. The format is detected unless it is named."""
    place = local_or_packed(path)
    if isinstance(place, Url):
        message = f"{place}: is packed, which is read for detection only"
        raise UsageError(message, advice="give a folder of images, or the set that it was packed from")
    chosen = format_of(place, EXAMPLE_FORMATS, named=format)
    if format == "auto":
        chosen.check_detected(place)
    if not chosen.reads_boxes:
        options.boxes.require_default(str(path))
    return chosen.open(place, options)
