"""Numbers, names, and what is neither."""

from __future__ import annotations

import pytest

from boxcrew.data.examples.columns import LabelParser


@pytest.mark.parametrize(
    ("words", "label_type", "others"),
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
def test_how_labels_are_read(words: str, label_type: str, others: tuple[str, ...]) -> None:
    parser = LabelParser.learn(words.split())
    assert (parser.label_type, parser.others) == (label_type, others)
    assert LabelParser.from_json(parser.to_json()) == parser
    names = {parser.class_name(word) for word in words.split() if not parser.is_mistake(word)}
    assert "x" not in names or label_type == "names" or others == ("x",)
