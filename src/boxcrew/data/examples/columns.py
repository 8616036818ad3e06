"""Columns of words as numbers: standardised, or a feature for each category.

A column is described by JSON values, so that new rows can be made the same inputs: a numeric one by `name`,
`mean` and `deviation`, a categorical one by `name` and `categories`, with `other` where rare ones share a
feature and `missing` where having no value has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from boxcrew.core.errors import DataError
from boxcrew.core.registry import suggest
from boxcrew.core.types import Bools, Floats
from boxcrew.data.checks.problem import Problem
from boxcrew.data.examples.table import Table, problem_at

Column = Mapping[str, Any]
MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "#n/a", "#na", "<na>"})
"""In lower case."""
_MISSING_NUMBERS = MISSING | {"none", "nil", "-", "--", ".", "..", "#div/0!", "#num!", "#value!", "#ref!"}
"""In lower case; among other words than numbers some may well be categories or classes."""
MOST_CATEGORIES = 32
_NUMERIC_SHARE = 0.95  # of the values that are there: so many make words among numbers mistakes
_LARGEST = 1e30  # a number beyond it is no measurement, and its square no number
_FARTHEST = 1e4  # deviations from the mean, for rows that training has not seen the like of
_SMALLEST_DEVIATION = 1e-30
_FEWEST_NUMBERED = 10  # rows: fewer may well be measured in this order
_NUMBERED_SHARE = 0.9  # of the steps from row to row


def learn_column(name: str, words: Sequence[str]) -> Column | None:
    """What the training rows tell about a column; None if it is the same everywhere."""
    numbers = _numbers(words)
    usable = _is_usable(numbers)
    there = ~_among(words, _MISSING_NUMBERS if len({*numbers[usable].tolist()}) > 1 else MISSING)
    if (np.isnan(numbers) & there).sum() <= (1 - _NUMERIC_SHARE) * there.sum():
        return _learn_numeric(name, numbers[usable])
    missing = missing_mask(words)
    counts = Counter(word for word, is_missing in zip(words, missing, strict=True) if not is_missing)
    if len(counts) + missing.any() < 2:
        return None
    common = sorted(counts, key=lambda word: (-counts[word], word))[:MOST_CATEGORIES]
    return {
        "name": name,
        "categories": sorted(common),
        "other": len(counts) > len(common),
        "missing": bool(missing.any()),
    }


def _learn_numeric(name: str, numbers: npt.NDArray[np.float64]) -> Column | None:
    if not len(numbers) or numbers.min() == numbers.max():
        return None
    deviation = max(float(numbers.std()), _SMALLEST_DEVIATION)
    return {"name": name, "mean": float(numbers.mean()), "deviation": deviation}


def missing_mask(words: Sequence[str]) -> Bools:
    return _among(words, MISSING)


def _among(words: Sequence[str], known: frozenset[str]) -> Bools:
    return np.array([word.lower() in known for word in words], dtype=np.bool_)


def is_row_index(words: Sequence[str]) -> bool:
    """Whether they are numbers that rise from row to row, by one but for a few rows that were lost."""
    if len(words) < _FEWEST_NUMBERED or not (_steps(words[:_FEWEST_NUMBERED]) > 0).all():
        return False
    steps = _steps(words)
    return bool((steps > 0).all() and (steps == 1).mean() >= _NUMBERED_SHARE)


def _steps(words: Sequence[str]) -> npt.NDArray[np.float64]:
    """From each to the next; NaN beside what is no number."""
    with np.errstate(invalid="ignore"):
        return np.diff(_numbers(words))


def unusable_mask(column: Column, words: Sequence[str]) -> Bools:
    """Where there is no value, or in a numeric column no number that can be used."""
    return missing_mask(words) if "categories" in column else ~_is_usable(_numbers(words))


def unknown_mask(column: Column, words: Sequence[str]) -> Bools:
    """Where there is a category that training has not seen: of many, those that are rare count as seen."""
    if "categories" not in column or column["other"]:
        return np.zeros(len(words), dtype=np.bool_)
    known = {*column["categories"]}
    return np.array([word not in known for word in words], dtype=np.bool_) & ~missing_mask(words)


def num_features(columns: Sequence[Column]) -> int:
    return sum(_width(column) for column in columns)


def encode_columns(columns: Sequence[Column], words: Mapping[str, Sequence[str]], count: int) -> Floats:
    """(count, features) from the words of each column, by its name."""
    encoded = np.zeros((count, num_features(columns)), dtype=np.float32)
    first = 0
    for column in columns:
        width = _width(column)
        _encode(column, words[column["name"]], encoded[:, first : first + width])
        first += width
    return encoded


def require_columns(table: Table, columns: Sequence[Column]) -> None:
    """`DataError` if the table lacks some."""
    lacking = [column["name"] for column in columns if column["name"] not in table.names]
    if lacking:
        noun, were = ("column", "was") if len(lacking) == 1 else ("columns", "were")
        raise DataError(
            f"{table.file}: has no {noun} {', '.join(map(repr, lacking))}, which {were} learnt from",
            advice=suggest(lacking[0], table.names),
        )


def value_problems(table: Table, columns: Sequence[Column]) -> Iterator[Problem]:
    """Values that are missing, cannot be used or were not in training, told once for each column."""
    for column in columns:
        words = table.column(column["name"])
        for where, told in (
            (unusable_mask(column, words), _unusable),
            (unknown_mask(column, words), _unknown),
        ):
            if where.any():
                yield told(table, column, words, where)


def _unusable(table: Table, column: Column, words: Sequence[str], where: Bools) -> Problem:
    first = words[int(np.argmax(where))]
    what = (
        f"column {column['name']!r}: {where.sum()} of {len(words)} values are missing or no numbers"
        f" (the first: {first!r}); taken as {_stand_in(column)}"
    )
    return problem_at(table, where, "value-missing", what, value=first, action="repaired")


def _stand_in(column: Column) -> str:
    """What a value that is not there is taken as."""
    if "categories" not in column:
        return f"the mean, {column['mean']:.4g}"
    return "a category of its own" if column["missing"] else "no category"


def _unknown(table: Table, column: Column, words: Sequence[str], where: Bools) -> Problem:
    first = words[int(np.argmax(where))]
    what = (
        f"column {column['name']!r}: {where.sum()} of {len(words)} values are not among those of training"
        f" (the first: {first!r})"
    )
    return problem_at(table, where, "value-unknown", what, value=first, action="noted")


def column_doubts(table: Table, column: Column) -> Iterator[Problem]:
    """That categories were hardly meant where most values are numbers, or nearly all differ."""
    if "categories" not in column:
        return
    words = table.column(column["name"])
    there = ~missing_mask(words)
    is_word = there & np.isnan(_numbers(words))
    num_numbers = int(there.sum() - is_word.sum())
    num_different = len({*words} - {word for word in words if word.lower() in MISSING})
    told = f"column {column['name']!r}: {num_different} different words in {len(words)} rows"
    if num_numbers > is_word.sum():
        first = words[int(np.argmax(is_word))]
        what = (
            f"{told}, taken as categories, though {num_numbers} are numbers; the first that is none:"
            f" {first!r}; write numbers alone there, or nothing"
        )
        yield problem_at(table, is_word, "column-doubtful", what, value=first, action="noted")
    elif num_different > max(MOST_CATEGORIES, len(words) / 2):
        what = (
            f"{told}, taken as categories, of which {MOST_CATEGORIES} are told apart; leave the column out,"
            " or give texts as files (format text)"
        )
        yield problem_at(table, there, "column-doubtful", what, value=column["name"], action="noted")


def encode_rows(encoding: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Floats:
    """(N, features) the inputs of new rows, by the `encoding` of the set that was trained on. A row has words
    or numbers by column; those it lacks (or None) are missing, those nobody asks for are not looked at.
    """
    columns = encoding["columns"]
    words = {column["name"]: [_word(row.get(column["name"])) for row in rows] for column in columns}
    return encode_columns(columns, words, len(rows))


def _word(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _width(column: Column) -> int:
    if "categories" not in column:
        return 1
    return len(column["categories"]) + int(column["other"]) + int(column["missing"])


def _encode(column: Column, words: Sequence[str], into: Floats) -> None:
    """Fills zeros, which stand for the mean and for no known category."""
    if "categories" in column:
        features = _features(column, words)
        known = np.flatnonzero(features >= 0)
        into[known, features[known]] = 1
        return
    numbers = _numbers(words)
    usable = _is_usable(numbers)
    standard = (numbers[usable] - column["mean"]) / column["deviation"]
    into[usable, 0] = np.clip(standard, -_FARTHEST, _FARTHEST)


def _features(column: Column, words: Sequence[str]) -> npt.NDArray[np.int64]:
    """Which feature is 1 for each word; -1 for none."""
    places = {word: place for place, word in enumerate(column["categories"])}
    other = len(places) if column["other"] else -1
    missing = len(places) + column["other"] if column["missing"] else -1
    features = np.array([places.get(word, other) for word in words], dtype=np.int64)
    return np.where(missing_mask(words), missing, features)


def _numbers(words: Sequence[str]) -> npt.NDArray[np.float64]:
    """NaN for what is no number."""
    if "_" not in "".join(words):
        with suppress(ValueError):
            return np.array([*map(float, words)], dtype=np.float64)
    return np.array([_number(word) for word in words], dtype=np.float64)


def _number(word: str) -> float:
    try:
        return float("nan" if "_" in word else word)  # Python takes 1_0 as 10
    except ValueError:
        return float("nan")


def _is_usable(numbers: npt.NDArray[np.float64]) -> Bools:
    usable: Bools = np.abs(numbers) < _LARGEST  # false for NaN
    return usable
