from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.checks.problem import Problem
from boxcrew.data.examples.example_set import (
    ExampleOptions,
    ExampleSet,
    ExampleSplit,
    InMemory,
    Relabeled,
    open_examples,
)
from tests.helpers.made_examples import write_classes


def numbered(labels: np.ndarray) -> InMemory:
    """Each input is its own place."""
    return InMemory(np.arange(len(labels))[:, None], labels, "x")


def places(part: ExampleSplit) -> list[int]:
    return [int(place) for place in part.fetch(range(len(part))).inputs[:, 0]]


@pytest.mark.parametrize("labels", [np.arange(300) // 100, np.arange(300) % 3], ids=["sorted", "in turns"])
def test_some_are_of_all_classes_however_these_are_ordered(labels: np.ndarray) -> None:
    some = numbered(labels).subset(100)
    assert len(some) == 100
    assert np.bincount(some.labels).min() > 20
    indices = places(some)
    assert [place // 3 for place in indices] == list(range(100))  # one of each stretch
    assert some.labels.tolist() == labels[indices].tolist()
    assert [some.key(index) for index in (0, 99)] == [f"x[{indices[index]}]" for index in (0, 99)]
    assert places(numbered(labels).subset(100)) == indices


@pytest.mark.parametrize("num", [7, 8, 1000])
def test_some_of_few_are_all(num: int) -> None:
    assert places(numbered(np.zeros(7, dtype=np.int64)).subset(num)) == list(range(7))


def test_some_are_asked_for_by_their_own_numbers() -> None:
    some = numbered(np.arange(90)).subset(9)
    fetched = some.fetch([8, 0, 8])
    assert fetched.indices.tolist() == [8, 0, 8]
    assert fetched.labels.tolist() == some.labels[[8, 0, 8]].tolist() == fetched.inputs[:, 0].tolist()


def test_what_cannot_be_read_of_some_is_left_out(tmp_path: Path) -> None:
    write_classes(tmp_path, {"a": 10, "b": 10})
    train = open_examples(tmp_path, ExampleOptions()).split("train")
    some = Relabeled(train.subset(4), np.array([5, 6, 7, 8])).with_cache(10**6)
    assert some.cached_bytes == 4 * some.input_bytes
    (tmp_path / some.key(1)).unlink()
    fetched = some.fetch([3, 1, 0])
    assert (fetched.indices.tolist(), fetched.labels.tolist()) == ([3, 0], [8, 5])
    assert some.key(1) in fetched.skipped[0]


def test_a_split_that_is_not_there_is_told_with_the_reason() -> None:
    part = numbered(np.zeros(2, dtype=np.int64))
    short = Problem(kind="text-short", file="book", at="val", message="is short", action="left out")
    opened = ExampleSet(
        root=Path("book"),
        format="text",
        kind="tokens",
        classes=(),
        shape=(1,),
        splits={"train": part},
        problems=(short,),
    )
    for name, advice in (("val", "it has: train; book val: is short (left out)"), ("test", "it has: train")):
        with pytest.raises(DataError, match=f"has no split '{name}'") as raised:
            opened.split(name)
        assert raised.value.advice == advice
