"""How the words of a label column are taken as classes, and which of them are mistakes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Sort = Literal["whole numbers", "numbers", "names"]
_FEW = 0.1  # of the training labels: so many of another sort may be mistakes


def number_of(word: str) -> float | None:
    """None also for what is not finite, and for 1_0, which Python takes as 10."""
    try:
        number = float(word)
    except ValueError:
        return None
    return number + 0.0 if math.isfinite(number) and "_" not in word else None  # -0 is 0


def are_few(num: int, among: int) -> bool:
    """Whether so many labels are one, or no more than a tenth."""
    return num <= max(1, among * _FEW)


@dataclass(frozen=True, kw_only=True)
class LabelParser:
    """How words are taken as classes: of numbers only the value counts, so that 1 and 1.0 are one class, and
    a few words among them, or a few fractions among whole numbers, are mistakes.
    """

    sort: Sort
    others: tuple[str, ...] = ()  # classes of another sort, which too many examples have for mistakes

    @classmethod
    def learn(cls, words: Sequence[str]) -> LabelParser:
        """By the labels of training. A label of another sort than all but a few is a mistake if at most half
        as many examples have it as have a class of that sort on average.
        """
        found = cls(sort=_sort_of(words))
        counts = Counter(map(found.name, words))
        others = sorted(name for name in counts if not found.fits(name))
        num_usual = (len(words) - sum(counts[name] for name in others)) / max(1, len(counts) - len(others))
        return replace(found, others=tuple(name for name in others if counts[name] > num_usual / 2))

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> LabelParser:
        return cls(sort=value["sort"], others=tuple(value["others"]))

    def to_json(self) -> dict[str, Any]:
        return {"sort": self.sort, "others": list(self.others)}

    def fits(self, word: str) -> bool:
        return self.sort == "names" or _fits(number_of(word), self.sort)

    def is_mistake(self, word: str) -> bool:
        return not self.fits(word) and self.name(word) not in self.others

    def name(self, word: str) -> str:
        """Of the class, the same for all words of one number."""
        number = self._number(word)
        if number is None:
            return word
        return f"{number:.0f}" if number.is_integer() else repr(number)

    def place(self, name: str) -> tuple[bool, float, str]:
        """What classes are sorted by: numbers come before words."""
        number = self._number(name)
        return number is None, number or 0.0, name

    def _number(self, word: str) -> float | None:
        return None if self.sort == "names" else number_of(word)


def _fits(number: float | None, sort: Sort) -> bool:
    return number is not None and (sort == "numbers" or number.is_integer())


def _sort_of(words: Sequence[str]) -> Sort:
    """That of all labels, or of all but a few where those make two classes; names, if there is none."""
    numbers = [*map(number_of, words)]
    sorts: tuple[Sort, ...] = ("whole numbers", "numbers")
    for sort in sorts:
        fitting = [number for number in numbers if _fits(number, sort)]
        num_others = len(numbers) - len(fitting)
        if not num_others or (are_few(num_others, len(numbers)) and len({*fitting}) > 1):
            return sort
    return "names"
