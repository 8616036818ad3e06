"""The common part of tasks whose examples have one label each, or none: opening, loading, describing."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self

import numpy as np
import torch
from pydantic import Field
from typing_extensions import TypeVar

from boxcrew.core.errors import DataError
from boxcrew.core.types import Batch
from boxcrew.core.units import format_count
from boxcrew.data.checks.problem import Problem, first_problem
from boxcrew.data.examples.example_set import (
    Array,
    ExampleOptions,
    ExampleSet,
    ExampleSplit,
    InputKind,
    Relabeled,
    open_examples,
)
from boxcrew.data.loading.collate import as_tensor
from boxcrew.data.loading.example_samples import Augmentation, ExampleSamples
from boxcrew.data.loading.loader import TrainLoader
from boxcrew.data.loading.order import BalancedOrder, SampleOrder
from boxcrew.tasks.base import Task, TaskConfig
from boxcrew.tasks.cost.flops import forward_flops
from boxcrew.tasks.data import ALL_SPLITS, EvaluationT, Loader, LoaderOptions, OpenOptions, TaskData
from boxcrew.tasks.facts import ExampleFacts

_MEASURED = 4096  # images whose pixels give the mean color
_DTYPES: dict[InputKind, type[np.generic]] = {"images": np.uint8, "numbers": np.float32, "tokens": np.int64}


class ExampleConfig(TaskConfig):
    """The settings of reading examples."""

    aliases: ClassVar[Mapping[str, str]] = {name: f"task.{name}" for name in ("size", "length", "label")}
    choices: ClassVar[Mapping[str, str]] = {"net": "name"}
    kinds: ClassVar[frozenset[InputKind]] = frozenset(_DTYPES)  # of inputs that the task accepts

    size: int | None = Field(default=None, ge=8, le=512)
    """Side of images in pixels; none keeps their own."""
    length: int = Field(default=128, ge=2)
    """Length of texts in characters."""
    label: str | None = None
    """Column of a table that is the class; none takes the last."""


ExampleConfigT = TypeVar("ExampleConfigT", bound=ExampleConfig, default=Any)


@dataclass(frozen=True, kw_only=True, eq=False)
class ExampleData(TaskData[ExampleConfigT, ExampleFacts, EvaluationT], Generic[ExampleConfigT, EvaluationT]):
    """Opened examples, with the splits to train and to validate on."""

    facts_class = ExampleFacts
    least_classes: ClassVar[int] = 1
    uses_labels: ClassVar[bool] = True  # whether the task learns from labels

    config: ExampleConfigT
    examples: ExampleSet
    train: ExampleSplit
    val: ExampleSplit
    known: ExampleFacts  # of the network to evaluate; in training, those of this data

    @classmethod
    def open(cls, config: ExampleConfigT, options: OpenOptions, facts: ExampleFacts | None = None) -> Self:
        data, wanted = options.data, _example_options(config, options, facts)
        opened = open_examples(data.path, wanted, format=data.format)
        if opened.kind not in config.kinds:
            raise DataError(f"{data.path}: holds {opened.kind}; this task needs {' or '.join(config.kinds)}")
        if facts is None:
            cls._require_classes(opened)
        else:
            _require_like(opened, facts)
            opened = known_only(opened, facts.classes) if cls.uses_labels else opened
        evaluates_all = facts is not None and data.val == ALL_SPLITS
        val = opened.all_examples() if evaluates_all else opened.split(data.val)
        return cls(
            config=config,
            examples=opened,
            train=opened.split("train") if facts is None else opened.splits.get("train", val),
            val=val,
            known=_data_facts(opened) if facts is None else facts,
        )

    @classmethod
    def _require_classes(cls, opened: ExampleSet) -> None:
        """Raise `DataError` if there are classes, but too few of them."""
        if 0 < len(opened.classes) < cls.least_classes:
            problem = f"{opened.root}: has only one class to train on: {opened.classes[0]!r}"
            advice, first = "at least two classes are needed", first_problem(opened.problems)
            raise DataError(problem, advice=f"{advice}; {first}" if first else advice)

    @property
    def facts(self) -> ExampleFacts:
        return self.known

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self.examples.problems

    @property
    def num_train(self) -> int:
        return len(self.train)

    def headline(self) -> str:
        counts = ", ".join(f"{name} {len(split)}" for name, split in self.examples.splits.items())
        noun = {"images": "images", "numbers": "rows", "tokens": "texts"}[self.examples.kind]
        shape, num = " x ".join(map(str, self.examples.shape)), len(self.examples.classes)
        classes = f", {num} class{'' if num == 1 else 'es'}" if num else ""
        return f"({self.examples.format}): {counts} {noun} of {shape}{classes}"

    def report(self) -> dict[str, Any]:
        return self.examples.report()

    def class_counts(self) -> Mapping[str, int]:
        return self.examples.counts(self.train)

    def digest(self) -> str:
        """Return a hash of labels, some keys and the first inputs, which is enough to tell two sets apart."""
        digest = hashlib.blake2b(np.ascontiguousarray(self.train.labels).tobytes(), digest_size=16)
        for index in range(0, len(self.train), max(1, len(self.train) // 64)):
            digest.update(self.train.key(index).encode(errors="surrogateescape"))
        first = self.train.fetch(range(min(64, len(self.train)))).inputs
        digest.update(np.ascontiguousarray(first).tobytes())
        return digest.hexdigest()

    def describe(self, task: Task) -> str:
        parameters = format_count(sum(p.numel() for p in task.network.parameters()))
        flops = format_count(forward_flops(task.network, as_tensor(self._zeros(1))))
        return f"network: {self.config.title}: {parameters} parameters, {flops} FLOPs a sample"

    def _zeros(self, num: int) -> Array:
        return np.zeros((num, *self.examples.shape), dtype=_DTYPES[self.examples.kind])

    def largest_batch(self, num_samples: int) -> Batch:
        inputs, labels = as_tensor(self._zeros(num_samples)), torch.zeros(num_samples, dtype=torch.int64)
        return Batch(inputs=inputs, targets={"labels": labels}, keys=("",) * num_samples)

    def with_cache(self, num_bytes: int) -> Self:
        train = self.train.with_cache(num_bytes)
        return replace(self, train=train, val=self.val.with_cache(num_bytes - train.cached_bytes))

    @property
    def cached_bytes(self) -> int | None:
        return self.train.cached_bytes + self.val.cached_bytes if self.sample_bytes else None

    @property
    def sample_bytes(self) -> int:
        return self.train.input_bytes

    def loader(self, options: LoaderOptions) -> Loader:
        order = BalancedOrder(self.train.labels, options.seed) if self.is_balanced else None
        samples = ExampleSamples(examples=self.train, blank=self._zeros(2), augmentation=self.augmentation())
        return TrainLoader(
            samples,
            order or SampleOrder(len(self.train), options.seed),
            batch=options.batch,
            workers=options.workers,
            positions=options.positions,
            share_sizes=options.share_sizes,
        )

    @property
    def is_balanced(self) -> bool:
        """True if training draws all classes equally often."""
        return False

    @abstractmethod
    def augmentation(self) -> Augmentation:
        """Return the random changes to training examples."""


def _example_options(
    config: ExampleConfig, options: OpenOptions, facts: ExampleFacts | None
) -> ExampleOptions:
    """Return how to read examples: for an existing network, in the form that it accepts."""
    return ExampleOptions(
        size=config.size,
        shape=facts.image_shape if facts and facts.kind == "images" else None,
        length=config.length,
        label=config.label,
        seed=options.seed,
        workers=options.workers,
        encoding=facts.encoding if facts else None,
        eval_only=facts is not None,
        boxes=options.data.box_options(),
    )


def _data_facts(opened: ExampleSet) -> ExampleFacts:
    """Return what the data decides about a network. For images that includes the mean and the standard
    deviation of each channel, of pixels 0..1, for the network to normalize by.
    """
    facts = ExampleFacts(
        classes=opened.classes, kind=opened.kind, shape=opened.shape, encoding=dict(opened.encoding)
    )
    if opened.kind != "images":
        return facts
    examples = opened.split("train")
    images = examples.fetch(range(0, len(examples), -(-len(examples) // _MEASURED))).inputs
    pixels = images.reshape(-1, images.shape[-1]).astype(np.float64) / 255
    deviation = np.maximum(pixels.std(axis=0), 0.05)  # images may be of one color
    mean, std = (tuple(values.round(6).tolist()) for values in (pixels.mean(axis=0), deviation))
    return replace(facts, mean=mean, std=std)


def _require_like(opened: ExampleSet, facts: ExampleFacts) -> None:
    """Raise `DataError` if a network cannot read the data at all."""
    have, expected = _noun(opened.kind, opened.classes), _noun(facts.kind, facts.classes)
    if have != expected:
        problem = f"{opened.root}: holds {have}, but the network was trained on {expected}"
        raise DataError(problem, advice=f"use {expected}")
    if opened.shape != facts.shape:
        have, expected = (" x ".join(map(str, shape)) for shape in (opened.shape, facts.shape))
        raise DataError(
            f"{opened.root}: has inputs of {have}, but the network was trained on {expected}",
            advice="use data like that of its training",
        )


def _noun(kind: InputKind, classes: Sequence[str]) -> str:
    """Return a kind of data in words; tokens are one of two kinds of text that need different networks."""
    if kind != "tokens":
        return kind
    return "texts of classes" if classes else "running text"


def known_only(opened: ExampleSet, classes: tuple[str, ...]) -> ExampleSet:
    """Return the examples with labels numbered as in a network's `classes`; others are a `DataError`."""
    if opened.classes == classes:
        return opened
    unknown = [name for name in opened.classes if name not in classes]
    if unknown:
        raise DataError(
            f"{opened.root}: has classes that the network does not know: {', '.join(unknown)}",
            advice=f"it knows {', '.join(classes) or 'none'}",
        )
    numbers = np.array([classes.index(name) for name in opened.classes], dtype=np.int64)
    splits = {name: Relabeled(split, numbers[split.labels]) for name, split in opened.splits.items()}
    return replace(opened, classes=classes, splits=splits)
