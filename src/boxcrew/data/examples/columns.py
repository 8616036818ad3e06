"""Encodes table columns as features: numbers are standardized, categories are one-hot. The column of labels
is read as classes by a `LabelParser`, which says which words are mistakes.

A `Column` is a mapping of JSON values, so that new rows can be encoded alike: `name`, `mean` and `deviation`
if it is numeric, else `name`, `categories`, `other` (whether rare categories share a feature) and `missing`
(whether missing values have a feature).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from boxcrew.core.errors import DataError
from boxcrew.core.registry import suggest
from boxcrew.core.types import Bools, Floats
from boxcrew.data.checks.problem import Action, Problem, ProblemKind
from boxcrew.data.examples.table import Table, number_of, problem_at

Column = Mapping[str, Any]
MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "#n/a", "#na", "<na>"})
"""Words that mean a missing value, in lower case."""
_MISSING_NUMBERS = MISSING | {"none", "nil", "-", "--", ".", "..", "#div/0!", "#num!", "#value!", "#ref!"}
"""Words that mean a missing number; in a column of words some of them may be categories."""
FEW_CATEGORIES = 16  # of which all may differ by chance
MOST_CATEGORIES = 32
_NUMERIC_SHARE = 0.95  # of the values: from this share on the column is numeric, and words are mistakes
_LARGEST = 1e30  # a number beyond this is no measurement, and its square overflows float32
_FARTHEST = 1e4  # deviations from the mean at which new values are clipped
_SMALLEST_DEVIATION = 1e-30
_FEWEST_INDEXED = 10  # rows: fewer increasing values may be measurements
_INDEXED_SHARE = 0.9  # of the steps from row to row that must be 1
_FEW = 0.1  # of the training labels: this share with another type may be mistakes

LabelType = Literal["whole numbers", "numbers", "names"]


def learn_column(name: str, words: Sequence[str]) -> Column | None:
    """Learn the encoding of a column from its training values; None if they are all the same."""
    numbers = _numbers(words)
    usable = _is_usable(numbers)
    present = ~missing_mask(words, _MISSING_NUMBERS if len({*numbers[usable].tolist()}) > 1 else MISSING)
    if (np.isnan(numbers) & present).sum() <= (1 - _NUMERIC_SHARE) * present.sum():
        values = numbers[usable]
        if not len(values) or values.min() == values.max():
            return None
        deviation = max(float(values.std()), _SMALLEST_DEVIATION)
        return {"name": name, "mean": float(values.mean()), "deviation": deviation}
    missing = missing_mask(words)
    counts = Counter(word for word, is_missing in zip(words, missing, strict=True) if not is_missing)
    if len(counts) + missing.any() < 2:
        return None
    common = sorted(counts, key=lambda word: (-counts[word], word))[:MOST_CATEGORIES]
    other, any_missing = len(counts) > len(common), bool(missing.any())
    return {"name": name, "categories": sorted(common), "other": other, "missing": any_missing}


def missing_mask(words: Sequence[str], missing: frozenset[str] = MISSING) -> Bools:
    return np.array([word.lower() in missing for word in words], dtype=np.bool_)


def is_row_index(words: Sequence[str]) -> bool:
    """Return whether the values count the rows: they increase by one, except over a few missing rows."""
    with np.errstate(invalid="ignore"):  # a step beside a value that is no number is NaN
        if len(words) < _FEWEST_INDEXED or not (np.diff(_numbers(words[:_FEWEST_INDEXED])) > 0).all():
            return False
        steps = np.diff(_numbers(words))
    return bool((steps > 0).all() and (steps == 1).mean() >= _INDEXED_SHARE)


def num_features(columns: Sequence[Column]) -> int:
    return sum(_width(column) for column in columns)


def encode_columns(columns: Sequence[Column], words: Mapping[str, Sequence[str]], count: int) -> Floats:
    """Return the features (count, features) of `count` rows, whose `words` are given by column name."""
    encoded = np.zeros((count, num_features(columns)), dtype=np.float32)
    ends = np.cumsum([_width(column) for column in columns]).tolist()
    for column, end in zip(columns, ends, strict=True):
        _encode(column, words[column["name"]], encoded[:, end - _width(column) : end])
    return encoded


def require_columns(table: Table, columns: Sequence[Column]) -> None:
    """Raise `DataError` if the table lacks one of the columns."""
    absent = [column["name"] for column in columns if column["name"] not in table.names]
    if absent:
        noun, were = ("column", "was") if len(absent) == 1 else ("columns", "were")
        message = f"{table.file}: has no {noun} {', '.join(map(repr, absent))}, which {were} learned from"
        raise DataError(message, advice=suggest(absent[0], table.names))


def value_problems(table: Table, columns: Sequence[Column]) -> Iterator[Problem]:
    """Report missing, unusable and unknown values, at most once each for a column."""
    for column in columns:
        words = table.column(column["name"])
        has_categories = "categories" in column
        unusable = missing_mask(words) if has_categories else ~_is_usable(_numbers(words))
        if unusable.any():
            category = "a category of its own" if column.get("missing") else "no category"
            taken = category if has_categories else f"the mean, {column['mean']:.4g}"
            complaint, ending = "missing or no numbers", f"; taken as {taken}"
            yield _value_problem(table, column, unusable, "value-missing", complaint, ending)
        if has_categories and not column["other"]:  # else rare categories share a feature
            known = {*column["categories"]}
            unknown = np.array([word not in known for word in words], dtype=np.bool_) & ~unusable
            if unknown.any():
                yield _value_problem(table, column, unknown, "value-unknown", "not among those of training")


def _value_problem(
    table: Table, column: Column, mask: Bools, kind: ProblemKind, complaint: str, ending: str = ""
) -> Problem:
    first = table.column(column["name"])[int(np.argmax(mask))]
    values = f"{mask.sum()} of {len(mask)} values are {complaint} (the first: {first!r})"
    action: Action = "repaired" if ending else "noted"
    message = f"column {column['name']!r}: {values}{ending}"
    return problem_at(table, mask, kind, message, value=first, action=action)


def column_doubts(table: Table, column: Column) -> Iterator[Problem]:
    """Report a column of categories that was hardly meant so: most are numbers, or nearly all differ."""
    if "categories" not in column:
        return
    words = table.column(column["name"])
    present = ~missing_mask(words)
    is_word = present & np.isnan(_numbers(words))
    num_numbers = int(present.sum() - is_word.sum())
    num_different = len({*words} - {word for word in words if word.lower() in MISSING})
    summary = f"column {column['name']!r}: {num_different} different words in {len(words)} rows"
    if num_numbers > is_word.sum():
        first = words[int(np.argmax(is_word))]
        message = (
            f"{summary}, read as categories, though {num_numbers} are numbers; the first that is not:"
            f" {first!r}; write only numbers there, or leave the cell empty"
        )
        yield problem_at(table, is_word, "column-doubtful", message, value=first, action="noted")
    elif num_different > max(FEW_CATEGORIES, len(words) / 2):
        message = (
            f"{summary}, read as categories, of which at most {MOST_CATEGORIES} get a feature, though they"
            " hardly occur twice; leave the column out, or give texts as files (format text)"
        )
        yield problem_at(table, present, "column-doubtful", message, value=column["name"], action="noted")


def encode_rows(encoding: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Floats:
    """Return the features (N, features) of new rows, by the `encoding` of the set that was trained on. A row
    maps column names to words or numbers; absent columns and None are missing values, other columns are
    ignored.
    """
    words = {}
    for name in (column["name"] for column in encoding["columns"]):
        values = [row.get(name) for row in rows]
        words[name] = ["" if value is None else str(value).strip() for value in values]
    return encode_columns(encoding["columns"], words, len(rows))


def _width(column: Column) -> int:
    if "categories" not in column:
        return 1
    return len(column["categories"]) + int(column["other"]) + int(column["missing"])


def _encode(column: Column, words: Sequence[str], into: Floats) -> None:
    """Encode one column into the zeros of `into`; missing or unknown values stay zero."""
    if "categories" in column:
        features_by_word = {word: feature for feature, word in enumerate(column["categories"])}
        count = len(features_by_word)
        other = count if column["other"] else -1  # -1: no feature is 1
        missing = count + column["other"] if column["missing"] else -1
        listed = np.array([features_by_word.get(word, other) for word in words], dtype=np.int64)
        features = np.where(missing_mask(words), missing, listed)
        known = np.flatnonzero(features >= 0)
        into[known, features[known]] = 1
        return
    numbers = _numbers(words)
    usable = _is_usable(numbers)
    standard = (numbers[usable] - column["mean"]) / column["deviation"]
    into[usable, 0] = np.clip(standard, -_FARTHEST, _FARTHEST)


def _numbers(words: Sequence[str]) -> npt.NDArray[np.float64]:
    """Parse words as numbers; NaN for a word that is none."""
    if "_" not in "".join(words):
        with suppress(ValueError):
            return np.array([*map(float, words)], dtype=np.float64)
    return np.array([_number(word) for word in words], dtype=np.float64)


def _number(word: str) -> float:
    try:
        return float("nan" if "_" in word else word)  # Python reads 1_0 as 10
    except ValueError:
        return float("nan")


def _is_usable(numbers: npt.NDArray[np.float64]) -> Bools:
    return np.asarray(np.abs(numbers) < _LARGEST)  # false for NaN


def are_few(count: int, total: int) -> bool:
    """Return whether `count` labels are at most one, or at most a tenth of the total."""
    return count <= max(1, total * _FEW)


@dataclass(frozen=True, kw_only=True)
class LabelParser:
    """The rule by which words become classes. Numbers count by value, so 1 and 1.0 are one class; a few words
    among numbers, or a few fractions among whole numbers, are mistakes.
    """

    label_type: LabelType
    others: tuple[str, ...] = ()  # classes of another type, too common to be mistakes

    @classmethod
    def learn(cls, words: Sequence[str]) -> LabelParser:
        """Learn from the labels of training. A label of a rare type is a mistake if it has at most half as
        many samples as a class of the usual type has on average.
        """
        parser = cls(label_type=_label_type(words))
        counts = Counter(map(parser.class_name, words))
        others = sorted(name for name in counts if not parser.matches(name))
        num_usual = (len(words) - sum(counts[name] for name in others)) / max(1, len(counts) - len(others))
        return replace(parser, others=tuple(name for name in others if counts[name] > num_usual / 2))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LabelParser:
        return cls(label_type=value["sort"], others=tuple(value["others"]))

    def to_json(self) -> dict[str, Any]:
        return {"sort": self.label_type, "others": list(self.others)}

    def matches(self, word: str) -> bool:
        return self.label_type == "names" or _matches(number_of(word), self.label_type)

    def is_mistake(self, word: str) -> bool:
        return not self.matches(word) and self.class_name(word) not in self.others

    def class_name(self, word: str) -> str:
        """Return the name of a word's class, the same for all spellings of one number."""
        number = self._number(word)
        return word if number is None else f"{number:.0f}" if number.is_integer() else repr(number)

    def sort_key(self, name: str) -> tuple[bool, float, str]:
        """Return a key that sorts class names: numbers by value, then words."""
        number = self._number(name)
        return number is None, number or 0.0, name

    def _number(self, word: str) -> float | None:
        return None if self.label_type == "names" else number_of(word)


def _matches(number: float | None, label_type: LabelType) -> bool:
    return number is not None and (label_type == "numbers" or number.is_integer())


def _label_type(words: Sequence[str]) -> LabelType:
    """Return the narrowest type of all labels, or of all but a few if the rest make two classes."""
    numbers = [*map(number_of, words)]
    numeric_types: tuple[LabelType, ...] = ("whole numbers", "numbers")
    for label_type in numeric_types:
        matching = [number for number in numbers if _matches(number, label_type)]
        num_others = len(numbers) - len(matching)
        if not num_others or (are_few(num_others, len(numbers)) and len({*matching}) > 1):
            return label_type
    return "names"
