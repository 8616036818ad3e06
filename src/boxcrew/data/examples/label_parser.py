"""Reads the words of a label column as classes, and tells which of them are mistakes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

LabelType = Literal["whole numbers", "numbers", "names"]
_FEW = 0.1  # of the training labels: this share with another type may be mistakes


def number_of(word: str) -> float | None:
    """Return the finite number that a word is, or None. 1_0, which Python reads as 10, is no number."""
    try:
        number = float(word)
    except ValueError:
        return None
    return number + 0.0 if math.isfinite(number) and "_" not in word else None  # -0 is 0


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
        if number is None:
            return word
        return f"{number:.0f}" if number.is_integer() else repr(number)

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
