"""Numbers, names, and what is neither."""

from __future__ import annotations

import pytest

from boxcrew.data.examples.label_parser import LabelParser


@pytest.mark.parametrize(
    ("words", "sort", "others"),
    [
        ("1 2 3", "whole numbers", ()),
        ("1 1.0", "whole numbers", ()),
        ("0.5 1 1.5", "numbers", ()),
        ("a b a", "names", ()),
        ("1_0 10 1_0 10", "names", ()),
        ("1 1 2 2 x", "whole numbers", ()),  # one is a mistake even of few
        ("1 1 2 2 x x", "names", ()),
        ("1 2 x", "whole numbers", ("x",)),  # as common as the others
        ("1 1 x", "names", ()),  # one class is none
        ("1 2 " * 9 + "x 1.5", "whole numbers", ()),
        ("1 2 " * 9 + "x x 1.5", "numbers", ()),
        ("1 2 0.5 " * 7 + "x x", "numbers", ()),
        ("1 2 3 4 5 6 7 8 9 " * 2 + "x x", "whole numbers", ("x",)),
    ],
)
def test_how_labels_are_read(words: str, sort: str, others: tuple[str, ...]) -> None:
    reading = LabelParser.learn(words.split())
    assert (reading.sort, reading.others) == (sort, others)
    assert LabelParser.of(reading.to_json()) == reading
    names = {reading.name(word) for word in words.split() if not reading.is_mistake(word)}
    assert "x" not in names or sort == "names" or others == ("x",)
