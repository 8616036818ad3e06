"""What all kinds of tasks have in common that learn from examples with a label each, or none."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from pydantic import Field

from boxcrew.core.errors import DataError
from boxcrew.core.types import Batch
from boxcrew.core.units import format_count
from boxcrew.data.checks.problem import Problem
from boxcrew.data.examples.example_set import (
    Array,
    Examples,
    ExampleSet,
    Kind,
    Relabelled,
    Wanted,
    open_examples,
)
from boxcrew.data.examples.labelled import first_of
from boxcrew.data.loading.example_loader import Changes, ExampleLoader, Stream, as_tensor
from boxcrew.data.loading.order import BalancedOrder, SampleOrder
from boxcrew.tasks.base import Task, TaskConfig
from boxcrew.tasks.data import DataFacts, Loader, LoaderOptions, OpenOptions, TaskData

_MEASURED = 4096  # pictures whose pixels are looked at for their mean
_DTYPES: dict[Kind, type[np.generic]] = {"pictures": np.uint8, "numbers": np.float32, "tokens": np.int64}


class ExampleConfig(TaskConfig):
    """Settings about the examples."""

    aliases: ClassVar[Mapping[str, str]] = {name: f"task.{name}" for name in ("size", "length", "label")}
    choices: ClassVar[Mapping[str, str]] = {"net": "name"}
    kinds: ClassVar[frozenset[Kind]] = frozenset(_DTYPES)  # of inputs that can be learnt from

    size: int | None = Field(default=None, ge=8, le=512)  # side of pictures; None: their own
    length: int = Field(default=128, ge=2)  # of texts, in characters
    label: str | None = None  # the column of a table that is learnt; None: the last


@dataclass(frozen=True, kw_only=True, eq=False)
class ExampleData(TaskData):
    least_classes: ClassVar[int] = 1
    uses_labels: ClassVar[bool] = True  # whether labels matter

    config: ExampleConfig
    examples: ExampleSet
    train: Examples
    val: Examples
    known: DataFacts  # of the network that the data is for; where there is none yet, what this data decides

    @classmethod
    def open(cls, config: TaskConfig, opening: OpenOptions) -> Self:
        assert isinstance(config, ExampleConfig)
        facts, wanted = opening.facts, _wanted(config, opening)
        opened = open_examples(opening.data.path, wanted, format=opening.data.format)
        if opened.kind not in config.kinds:
            raise DataError(
                f"{opening.data.path}: holds {opened.kind}; this task learns from {' or '.join(config.kinds)}"
            )
        if facts is None:
            cls._require_classes(opened)
        else:
            _require_like(opened, facts)
            opened = known_only(opened, tuple(facts["classes"])) if cls.uses_labels else opened
        evaluated = opened.whole() if opening.evaluates_all else opened.split(opening.data.val)
        return cls(
            config=config,
            examples=opened,
            train=opened.split("train") if facts is None else opened.splits.get("train", evaluated),
            val=evaluated,
            known=_decided(opened) if facts is None else facts,
        )

    @classmethod
    def _require_classes(cls, opened: ExampleSet) -> None:
        """Where there are any, there must be enough of them."""
        if 0 < len(opened.classes) < cls.least_classes:
            advice = "two classes or more can be told apart"
            first = first_of(opened.problems)
            raise DataError(
                f"{opened.root}: has only one class to train on: {opened.classes[0]!r}",
                advice=f"{advice}; {first}" if first else advice,
            )

    @property
    def facts(self) -> DataFacts:
        return self.known

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self.examples.problems

    @property
    def num_train(self) -> int:
        return len(self.train)

    def headline(self) -> str:
        counts = ", ".join(f"{name} {len(part)}" for name, part in self.examples.splits.items())
        what = {"pictures": "pictures", "numbers": "rows", "tokens": "texts"}[self.examples.kind]
        shape = " x ".join(map(str, self.examples.shape))
        num = len(self.examples.classes)
        classes = f", {num} class{'' if num == 1 else 'es'}" if num else ""
        return f"({self.examples.format}): {counts} {what} of {shape}{classes}"

    def report(self) -> dict[str, Any]:
        return self.examples.report()

    def class_counts(self) -> Mapping[str, int]:
        return self.examples.counts(self.train)

    def digest(self) -> str:
        """Of labels, keys and the first inputs: enough to tell two sets apart."""
        seen = hashlib.blake2b(np.ascontiguousarray(self.train.labels).tobytes(), digest_size=16)
        for index in range(0, len(self.train), max(1, len(self.train) // 64)):
            seen.update(self.train.key(index).encode(errors="surrogateescape"))
        seen.update(np.ascontiguousarray(self.train.fetch(range(min(64, len(self.train)))).inputs).tobytes())
        return seen.hexdigest()

    def describe(self, task: Task) -> str:
        from torch.utils.flop_counter import FlopCounterMode  # slow to import, and a plan does without

        network = task.network
        was_training = network.training
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network.eval()(as_tensor(self._zeros(1)))
        network.train(was_training)
        parameters = format_count(sum(p.numel() for p in network.parameters()))
        flops = format_count(counter.get_total_flops())
        return f"network: {self.config.title}: {parameters} parameters, {flops} FLOPs a sample"

    def _zeros(self, num: int) -> Array:
        return np.zeros((num, *self.examples.shape), dtype=_DTYPES[self.examples.kind])

    def largest_batch(self, num_samples: int) -> Batch:
        labels = torch.zeros(num_samples, dtype=torch.int64)
        return Batch(
            inputs=as_tensor(self._zeros(num_samples)), targets={"labels": labels}, keys=("",) * num_samples
        )

    def cost_key(self) -> Mapping[str, Any]:
        return {}

    def keeping(self, num_bytes: int) -> Self:
        train = self.train.keeping(num_bytes)
        return replace(self, train=train, val=self.val.keeping(num_bytes - train.kept_bytes))

    @property
    def kept_bytes(self) -> int | None:
        return self.train.kept_bytes + self.val.kept_bytes if self.read_bytes else None

    @property
    def read_bytes(self) -> int:
        return self.train.input_bytes

    @property
    def most_read_bytes(self) -> int:
        return self.train.input_bytes

    def loader(self, feed: LoaderOptions) -> Loader:
        order = BalancedOrder(self.train.labels, feed.seed) if self.is_balanced else None
        stream = Stream(
            examples=self.train,
            order=order or SampleOrder(len(self.train), feed.seed),
            blank=self._zeros(2),
            changes=self.changes(),
        )
        return ExampleLoader(stream, batch=feed.batch, workers=feed.workers, places=feed.places)

    @property
    def is_balanced(self) -> bool:
        """Whether all classes are learnt from equally often."""
        return False

    @abstractmethod
    def changes(self) -> Changes:
        """What is done to the examples of training."""


def _wanted(config: ExampleConfig, opening: OpenOptions) -> Wanted:
    """Where a network is there already, as it takes them."""
    facts = opening.facts
    return Wanted(
        size=config.size,
        shape=tuple(facts["shape"]) if facts and facts["kind"] == "pictures" else None,
        length=config.length,
        label=config.label,
        seed=opening.seed,
        workers=opening.workers,
        meaning=facts["meaning"] if facts else None,
        evaluated=facts is not None,
    )


def _decided(opened: ExampleSet) -> DataFacts:
    """What the data decides about a network."""
    found = {
        "classes": list(opened.classes),
        "kind": opened.kind,
        "shape": list(opened.shape),
        "meaning": dict(opened.meaning),
    }
    return found | (_colours(opened.split("train")) if opened.kind == "pictures" else {})


def _require_like(opened: ExampleSet, facts: DataFacts) -> None:
    """What a network cannot take at all is an error."""
    have, learnt = _sort(opened.kind, opened.classes), _sort(facts["kind"], facts["classes"])
    if have != learnt:
        raise DataError(
            f"{opened.root}: holds {have}, but the network has learnt from {learnt}", advice=f"give {learnt}"
        )
    if opened.shape != tuple(facts["shape"]):
        have, learnt = (" x ".join(map(str, shape)) for shape in (opened.shape, facts["shape"]))
        raise DataError(
            f"{opened.root}: gives inputs of {have}, but the network takes {learnt}",
            advice="give data like that which it has learnt from",
        )


def _sort(kind: Kind, classes: Sequence[str]) -> str:
    """In words: tokens may be either sort of text, and what is known of one does not fit the other."""
    if kind != "tokens":
        return kind
    return "texts of classes" if classes else "running text"


def _colours(examples: Examples) -> dict[str, list[float]]:
    """Mean and deviation of each channel, of 0..1 pixels, for the network to bring them to unit size."""
    some = range(0, len(examples), -(-len(examples) // _MEASURED))
    pictures = examples.fetch(some).inputs
    pixels = pictures.reshape(-1, pictures.shape[-1]).astype(np.float64) / 255
    deviation = np.maximum(pixels.std(axis=0), 0.05)  # of pictures of one colour
    return {"mean": pixels.mean(axis=0).round(6).tolist(), "std": deviation.round(6).tolist()}


def known_only(opened: ExampleSet, classes: tuple[str, ...]) -> ExampleSet:
    """With labels numbered as a network has learnt them; a class that it does not know is an error."""
    if opened.classes == classes:
        return opened
    unknown = [name for name in opened.classes if name not in classes]
    if unknown:
        raise DataError(
            f"{opened.root}: has classes that the network does not know: {', '.join(unknown)}",
            advice=f"it knows {', '.join(classes) or 'none'}",
        )
    numbers = np.array([classes.index(name) for name in opened.classes], dtype=np.int64)
    splits = {name: Relabelled(part, numbers[part.labels]) for name, part in opened.splits.items()}
    return replace(opened, classes=classes, splits=splits)
