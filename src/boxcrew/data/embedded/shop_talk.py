"""The embedded text: talks in a shop, made by rules. What things cost, where they lie and in which colours
they come is always the same, so there is something to learn beside spelling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Product:
    one: str
    many: str
    price: int  # of one, in euros
    place: str
    colours: tuple[str, ...]


def _product(one: str, many: str, price: int, place: str, colours: str) -> Product:
    return Product(one=one, many=many, price=price, place=place, colours=tuple(colours.split()))


PRODUCTS = (
    _product("shirt", "shirts", 15, "on the first rail", "white blue black"),
    _product("jacket", "jackets", 60, "on the second rail", "green black"),
    _product("scarf", "scarves", 9, "on the hooks at the door", "red yellow blue"),
    _product("umbrella", "umbrellas", 14, "in the basket at the door", "black red"),
    _product("watch", "watches", 85, "under the glass", "black white"),
    _product("phone", "phones", 240, "under the glass", "black white blue"),
    _product("speaker", "speakers", 45, "on the top shelf", "black red"),
    _product("keyboard", "keyboards", 35, "on the top shelf", "white black"),
    _product("lamp", "lamps", 22, "on the second shelf", "green yellow white"),
    _product("mug", "mugs", 6, "on the second shelf", "red blue green yellow"),
    _product("kettle", "kettles", 28, "on the lowest shelf", "white red"),
    _product("notebook", "notebooks", 4, "on the table in the middle", "red green black"),
)
COLOURS = ("red", "blue", "green", "yellow", "black", "white")
_NUMBERS = ("no", "one", "two", "three", "four", "five")
_GREETINGS = ("Good morning.", "Good afternoon.", "Hello.", "Excuse me, please.")
_PRICE_QUESTIONS = ("How much is one?", "How much is it?", "What does it cost?")
_REFUSALS = ("I will think about it.", "That is too much for me.")
_PAYMENTS = ("Here you are.", "I pay by card.")
_THANKS = ("Thank you.", "Thank you very much.", "Many thanks.")
_FAREWELLS = ("Goodbye.", "Have a nice day.", "See you soon.")


def write_shop_talk(num_characters: int, *, seed: int) -> str:
    """Whole talks with an empty line between two, at least so many characters."""
    rng = np.random.default_rng(seed)
    talks: list[str] = []
    length = 0
    while length < num_characters:
        talks.append("\n".join(_talk(rng)) + "\n")
        length += len(talks[-1]) + 1
    return "\n".join(talks)


def _talk(rng: np.random.Generator) -> Iterator[str]:
    product, colour = _pick(rng, PRODUCTS), _pick(rng, COLOURS)
    yield f"Customer: {_pick(rng, _GREETINGS)} {_question(rng, product, colour)}"
    if colour not in product.colours:
        yield f"Clerk: I am sorry, we have no {colour} {product.many}. They come in {_list(product.colours)}."
        if rng.random() < 0.4:
            yield "Customer: What a pity. Goodbye."
            return
        colour = _pick(rng, product.colours)
        yield f"Customer: Then I would like a {colour} one. Where do I find it?"
    yield f"Clerk: The {colour} {product.many} are {product.place}{_neighbour(rng, product)}."
    if rng.random() < 0.6:
        answer = _pick(rng, ("It costs", "It is", f"One {product.one} costs"))
        yield f"Customer: {_pick(rng, _PRICE_QUESTIONS)}"
        yield f"Clerk: {answer} {product.price} euros."
    yield from _sale(rng, product, colour)


def _question(rng: np.random.Generator, product: Product, colour: str) -> str:
    ways = (
        f"Do you have a {colour} {product.one}?",
        f"I am looking for a {colour} {product.one}.",
        f"Where are the {colour} {product.many}?",
        f"Do you sell {colour} {product.many}?",
    )
    return _pick(rng, ways)


def _neighbour(rng: np.random.Generator, product: Product) -> str:
    """What lies in the same place, now and then."""
    others = [other for other in PRODUCTS if other.place == product.place and other != product]
    return f", next to the {_pick(rng, others).many}" if others and rng.random() < 0.7 else ""


def _sale(rng: np.random.Generator, product: Product, colour: str) -> Iterator[str]:
    count = int(rng.integers(0, len(_NUMBERS)))
    if count == 0:
        yield f"Customer: {_pick(rng, _REFUSALS)}"
    else:
        thing = product.one if count == 1 else product.many
        verb = "costs" if count == 1 else "cost"
        yield f"Customer: I will take {_NUMBERS[count]} {colour} {thing}."
        yield f"Clerk: {_NUMBERS[count].capitalize()} {thing} {verb} {count * product.price} euros."
        yield f"Customer: {_pick(rng, _PAYMENTS)} {_pick(rng, _THANKS)}"
    yield f"Clerk: {_pick(rng, _FAREWELLS)}"


def _list(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _pick(rng: np.random.Generator, options: tuple[T, ...] | list[T]) -> T:
    return options[int(rng.integers(len(options)))]
