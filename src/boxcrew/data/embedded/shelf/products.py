"""The eight classes of the set in the order of their labels, and the designs of each."""

from __future__ import annotations

from collections.abc import Mapping

from boxcrew.data.embedded.shelf.design import Design
from boxcrew.data.embedded.shelf.products_audio import AUDIO
from boxcrew.data.embedded.shelf.products_desk import BOOKS, COMPUTER
from boxcrew.data.embedded.shelf.products_small import PHONE, SHOES, WATCH
from boxcrew.data.embedded.shelf.products_wear import CLOTHES, PANTS

PRODUCTS: Mapping[str, tuple[Design, ...]] = {
    "clothes": CLOTHES,
    "pants": PANTS,
    "shoes": SHOES,
    "watch": WATCH,
    "phone": PHONE,
    "audio": AUDIO,
    "computer": COMPUTER,
    "books": BOOKS,
}

CLASSES = tuple(PRODUCTS)
