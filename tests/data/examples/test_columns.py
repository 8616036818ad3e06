"""Which columns are numbers, which are categories, and which are doubtful."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from boxcrew.data.checks.problem import Problem
from boxcrew.data.examples.columns import column_doubts, encode_rows, is_row_index, learn_column, missing_mask
from boxcrew.data.examples.table import Table

NUMBERS = [f"{index * 7 % 50}.5" for index in range(50)]


def doubted(words: Sequence[str]) -> list[Problem]:
    column = learn_column("x", words)
    assert column is not None
    lines = range(2, 2 + len(words))
    return list(
        column_doubts(Table(file=Path("a.csv"), names=("x",), rows=[[w] for w in words], lines=lines), column)
    )


@pytest.mark.parametrize("word", ["#N/A", "#n/a", "none", "None", "null", "-", "--", ".", "?", "NA", "<NA>"])
def test_words_for_no_value_do_not_make_numbers_categories(word: str) -> None:
    column = learn_column("x", [*NUMBERS, *[word] * 30])
    assert column is not None
    assert column["mean"] == pytest.approx(np.mean([*map(float, NUMBERS)]))
    assert encode_rows({"columns": [column]}, [{"x": word}]).tolist() == [[0]]
    assert doubted([*NUMBERS, word]) == []


@pytest.mark.parametrize("words", ["+ -", "none some", "1 none", ". : !"])
def test_without_numbers_such_words_are_categories(words: str) -> None:
    column = learn_column("x", words.split() * 20)
    assert column is not None
    assert column["categories"] == sorted(words.split())
    assert not missing_mask(words.split()).any()


def test_words_among_numbers_that_make_categories_are_told() -> None:
    (problem,) = doubted([*NUMBERS, *["low"] * 20, "", "high"])
    assert (problem.kind, problem.action, problem.count) == ("column-doubtful", "noted", 21)
    assert (problem.at, problem.value) == ("from line 52", "low")
    assert problem.message == (
        "column 'x': 52 different words in 72 rows, read as categories, though 50 are numbers;"
        " the first that is not: 'low'; write only numbers there, or leave the cell empty"
    )


def test_words_that_nearly_all_differ_are_told() -> None:
    texts = [f"text of number {index}" for index in range(60)]
    (problem,) = doubted([*texts, *["again"] * 40, "NA"])
    assert (problem.kind, problem.action, problem.count) == ("column-doubtful", "noted", 100)
    assert "column 'x': 61 different words in 101 rows, read as categories" in problem.message
    assert "leave the column out, or give texts as files (format text)" in problem.message
    assert doubted([*texts, *["again"] * 70]) == []
    (ids,) = doubted(texts[:20])
    assert "hardly occur twice" in ids.message
    assert doubted(texts[:16]) == []
    assert doubted(NUMBERS) == []


def test_numbers_with_underscores_are_words() -> None:
    column = learn_column("x", ["1_0", "10", "1_1", "11"] * 10)
    assert column is not None
    assert column["categories"] == ["10", "11", "1_0", "1_1"]
    column = learn_column("x", NUMBERS)
    assert column is not None
    assert not encode_rows({"columns": [column]}, [{"x": "9_9"}]).any()


def rising(*lost: int, first: int = 0, count: int = 50) -> list[str]:
    return [str(first + index) for index in range(count) if index not in lost]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (rising(), True),
        (rising(first=1), True),
        (rising(3, 30, first=1000), True),
        ([f"{word}.0" for word in rising()], True),
        (rising(count=9), False),
        (rising()[::-1], False),
        (rising()[::2], False),
        ([*rising(), "49"], False),
        ([*rising(), "x"], False),
        (["inf", *rising()], False),
        (["inf"] * 20, False),
        (NUMBERS, False),
    ],
)
def test_what_numbers_the_rows(words: Sequence[str], expected: bool) -> None:
    assert is_row_index(words) is expected
