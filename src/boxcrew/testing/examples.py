"""What holds for every format of labelled examples. Tests call these for each name of the registry."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.data.detection.source import SPLITS
from boxcrew.data.examples.example_set import (
    EXAMPLE_FORMATS,
    ExampleOptions,
    Examples,
    ExampleSet,
    open_examples,
)

_TYPES = {"pictures": np.uint8, "numbers": np.float32, "tokens": np.int64}


def check_invariants(opened: ExampleSet) -> None:
    """What any opened set promises to the rest of the program."""
    assert opened.format in EXAMPLE_FORMATS.names()
    assert list(opened.splits) == [name for name in SPLITS if name in opened.splits]
    assert {"train", "val"} <= set(opened.splits)
    assert len(opened.classes) != 1
    assert len(set(opened.classes)) == len(opened.classes)
    assert json.loads(json.dumps(opened.encoding)) == opened.encoding
    keys = [part.key(index) for part in opened.splits.values() for index in range(len(part))]
    assert len(set(keys)) == len(keys), "keys are not unique"
    for part in opened.splits.values():
        _check_split(opened, part)
    if opened.classes:
        assert set(opened.split("train").labels.tolist()) == set(range(len(opened.classes)))


def _check_split(opened: ExampleSet, part: Examples) -> None:
    assert len(part) >= 1
    assert part.labels.dtype == np.int64
    assert part.labels.min() >= 0
    assert part.labels.max() < max(1, len(opened.classes))
    asked = [len(part) - 1, 0, len(part) // 2, 0]
    fetched = part.fetch(asked)
    assert fetched.skipped == ()
    assert fetched.indices.tolist() == asked
    assert fetched.labels.tolist() == part.labels[asked].tolist()
    assert fetched.inputs.shape == (4, *opened.shape)
    assert fetched.inputs.dtype == _TYPES[opened.kind]
    assert np.array_equal(fetched.inputs[1], fetched.inputs[3])
    assert np.array_equal(part.fetch(np.array(asked[1:2])).inputs, fetched.inputs[1:2])
    first = fetched.inputs[1].copy()
    fetched.inputs[:] = 0  # what was given is the asker's own
    assert np.array_equal(part.fetch(asked).inputs[1], first)


def check_opens_the_same(path: str | Path, options: ExampleOptions) -> None:
    """Opening twice gives the same examples in the same order."""
    first, second = (open_examples(path, options) for _ in range(2))
    assert first.classes == second.classes
    assert first.shape == second.shape
    assert first.encoding == second.encoding
    assert first.problems == second.problems
    assert list(first.splits) == list(second.splits)
    for split, part in first.splits.items():
        other = second.splits[split]
        everyone = range(len(part))
        assert [part.key(i) for i in everyone] == [other.key(i) for i in range(len(other))]
        assert np.array_equal(part.labels, other.labels)
        assert np.array_equal(part.fetch(everyone).inputs, other.fetch(everyone).inputs)


def check_refuses(name: str, folder: Path) -> None:
    """A path that does not exist, an empty folder and a foreign file are not the format's; opening them
    anyway is a `DataError` that names the path.
    """
    empty, foreign = folder / "empty", folder / "letter.doc"
    empty.mkdir()
    foreign.write_bytes(b"Dear Sir or Madam\n")
    kind = EXAMPLE_FORMATS.get(name)
    for path in (folder / "absent", empty, foreign):
        assert not (path.exists() and kind.detect(path)), path
        error = _refusal(name, path)
        assert error is not None, f"{name} opened {path}"
        assert str(path) in error.message
        assert error.advice


def _refusal(name: str, path: Path) -> DataError | None:
    try:
        open_examples(path, ExampleOptions(), format=name)
    except DataError as error:
        return error
    return None
