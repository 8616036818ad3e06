from __future__ import annotations

import re

import pytest

from boxcrew.data.embedded.shop_talk import PRODUCTS, write_shop_talk

_WORDS = {"One": 1, "Two": 2, "Three": 3, "Four": 4, "Five": 5}


@pytest.fixture(scope="module")
def text() -> str:
    return write_shop_talk(60_000, seed=0)


def test_it_is_as_long_as_asked_for_and_always_the_same(text: str) -> None:
    assert 60_000 <= len(text) < 61_000
    assert write_shop_talk(60_000, seed=0) == text
    assert write_shop_talk(1_000, seed=1) != text[:1_000]
    assert text.isascii()


def test_sums_are_right(text: str) -> None:
    prices = {name: product.price for product in PRODUCTS for name in (product.singular, product.plural)}
    sums = re.findall(r"Clerk: (\w+) (\w+) costs? (\d+) euros", text)
    assert len(sums) > 50
    assert {word for word, _, _ in sums} == set(_WORDS)
    for word, thing, total in sums:
        assert _WORDS[word] * prices[thing] == int(total)


def test_colors_that_there_are_not_are_not_sold(text: str) -> None:
    colors = {product.plural: product.colors for product in PRODUCTS}
    sold = re.findall(r"Clerk: The (\w+) (\w+) are ", text)
    refused = re.findall(r"we have no (\w+) (\w+)\.", text)
    assert min(len(sold), len(refused)) > 50
    assert all(color in colors[thing] for color, thing in sold)
    assert all(color not in colors[thing] for color, thing in refused)


def test_talks_differ(text: str) -> None:
    talks = text.split("\n\n")
    assert len(set(talks)) > 0.8 * len(talks)
    assert all(talk.startswith("Customer: ") for talk in talks)
