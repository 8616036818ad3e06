from __future__ import annotations

from boxcrew.data.examples.alphabet import decode_tokens
from boxcrew.data.examples.example_set import ExampleOptions, open_examples


def test_the_text_is_the_same_whatever_the_seed() -> None:
    first, second = (open_examples("shop_talk", ExampleOptions(seed=seed, length=64)) for seed in (0, 9))
    assert first.encoding == second.encoding
    parts = [
        decode_tokens(opened.encoding, opened.split("val").fetch([3]).inputs[0]) for opened in (first, second)
    ]
    assert parts[0] == parts[1]
    assert first.shape == (65,)


def test_validation_has_no_character_that_training_lacks() -> None:
    opened = open_examples("shop_talk", ExampleOptions())
    for split in ("val", "test"):
        part = opened.split(split)
        assert part.fetch(range(len(part))).inputs.min() > 0
