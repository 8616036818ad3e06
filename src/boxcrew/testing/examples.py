"""The contract of every format of labeled samples. Tests call these checks for each registered name."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np

from boxcrew.data.detection.source import SPLITS
from boxcrew.data.examples.example_set import (
    EXAMPLE_FORMATS,
    ExampleOptions,
    ExampleSet,
    ExampleSplit,
    open_examples,
)
from boxcrew.testing.sources import check_refused

_TYPES = {"images": np.uint8, "numbers": np.float32, "tokens": np.int64}


def check_invariants(opened: ExampleSet) -> None:
    """Check what every opened set promises to the rest of the program."""
    assert opened.format in EXAMPLE_FORMATS.names()
    assert list(opened.splits) == [name for name in SPLITS if name in opened.splits]
    assert {"train", "val"} <= set(opened.splits)
    assert len(opened.classes) != 1
    assert len(set(opened.classes)) == len(opened.classes)
    assert json.loads(json.dumps(opened.encoding)) == opened.encoding
    keys = [examples.key(index) for examples in opened.splits.values() for index in range(len(examples))]
    assert len(set(keys)) == len(keys), "keys are not unique"
    for examples in opened.splits.values():
        _check_split(opened, examples)
    if opened.classes:
        assert set(opened.split("train").labels.tolist()) == set(range(len(opened.classes)))


def _check_split(opened: ExampleSet, examples: ExampleSplit) -> None:
    assert len(examples) >= 1
    assert examples.labels.dtype == np.int64
    assert examples.labels.min() >= 0
    assert examples.labels.max() < max(1, len(opened.classes))
    indices = [len(examples) - 1, 0, len(examples) // 2, 0]
    fetched = examples.fetch(indices)
    assert fetched.skipped == ()
    assert fetched.indices.tolist() == indices
    assert fetched.labels.tolist() == examples.labels[indices].tolist()
    assert fetched.inputs.shape == (4, *opened.shape)
    assert fetched.inputs.dtype == _TYPES[opened.kind]
    assert np.array_equal(fetched.inputs[1], fetched.inputs[3])
    assert np.array_equal(examples.fetch(np.array(indices[1:2])).inputs, fetched.inputs[1:2])
    first = fetched.inputs[1].copy()
    fetched.inputs[:] = 0  # the caller owns what it fetched
    assert np.array_equal(examples.fetch(indices).inputs[1], first)


def check_opens_the_same(path: str | Path, options: ExampleOptions) -> None:
    """Check that opening twice gives the same samples in the same order."""
    first, second = (open_examples(path, options) for _ in range(2))
    for name in ("classes", "shape", "encoding", "problems"):
        assert getattr(first, name) == getattr(second, name), name
    assert list(first.splits) == list(second.splits)
    for split, examples in first.splits.items():
        again = second.splits[split]
        indices = range(len(examples))
        assert [examples.key(i) for i in indices] == [again.key(i) for i in range(len(again))]
        assert np.array_equal(examples.labels, again.labels)
        assert np.array_equal(examples.fetch(indices).inputs, again.fetch(indices).inputs)


def check_refuses(name: str, folder: Path) -> None:
    """Check that a format refuses what is not of it."""
    opened = partial(open_examples, options=ExampleOptions(), format=name)
    check_refused(folder, EXAMPLE_FORMATS.get(name).detect, opened)
