"""Texts as numbers, a number for each character, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from boxcrew.core.types import PADDING, Ints

UNKNOWN_CHARACTER = "\N{REPLACEMENT CHARACTER}"

Unit = Literal["line", "file"]


def alphabet_of(texts: Iterable[str]) -> str:
    """Their characters, sorted."""
    characters: set[str] = set()
    for text in texts:
        characters |= set(text)
    return "".join(sorted(characters))


def meaning_of_text(texts: Iterable[str]) -> dict[str, Any]:
    """For text that goes on: 0 is any character that is not in `texts`, theirs are 1, 2, …"""
    return {"alphabet": alphabet_of(texts), "unknown": 0}


def meaning_of_texts(texts: Iterable[str], *, length: int, unit: Unit = "line") -> dict[str, Any]:
    """For texts of one length: 0 follows those that are shorter, 1 is any character that is not in `texts`,
    theirs are 2, 3, … `unit`: what of a text file was one of them.
    """
    return {"alphabet": alphabet_of(texts), "unknown": PADDING + 1, "length": length, "unit": unit}


def is_of_running_text(meaning: Mapping[str, Any]) -> bool:
    """Rather than of texts of one length, or of no text at all."""
    return "alphabet" in meaning and "length" not in meaning


def num_tokens(meaning: Mapping[str, Any]) -> int:
    """How many numbers there are, from 0 on."""
    return int(meaning["unknown"]) + 1 + len(meaning["alphabet"])


def encode_text(meaning: Mapping[str, Any], text: str) -> Ints:
    """(length,) as the inputs of a set with this meaning: cut or followed by 0 where all have one length,
    else as long as the text.
    """
    if "length" in meaning:
        return encode_texts(meaning, [text]).reshape(-1)
    return _tokens(meaning, text)


def encode_texts(meaning: Mapping[str, Any], texts: Sequence[str]) -> Ints:
    """(N, length) for a meaning with a length."""
    length = int(meaning["length"])
    short = [text[:length] for text in texts]
    encoded = np.full((len(texts), length), PADDING, dtype=np.int64)
    lengths = np.array([len(text) for text in short], dtype=np.int64)
    encoded[np.arange(length) < lengths[:, None]] = _tokens(meaning, "".join(short))
    return encoded


def decode_tokens(meaning: Mapping[str, Any], tokens: Sequence[int] | Ints) -> str:
    """The characters, without what only fills; one that is not known is shown as such."""
    unknown, alphabet = int(meaning["unknown"]), str(meaning["alphabet"])
    shown = UNKNOWN_CHARACTER + alphabet
    return "".join(shown[token - unknown] for token in np.asarray(tokens).tolist() if token >= unknown)


def unknown_characters(meaning: Mapping[str, Any], text: str) -> str:
    """Those of a text that are not in the alphabet, each once, sorted."""
    return "".join(sorted(set(text) - set(meaning["alphabet"])))


def _tokens(meaning: Mapping[str, Any], text: str) -> Ints:
    # By code points and all at once: texts have millions of characters.
    alphabet, codes = _code_points(meaning["alphabet"]), _code_points(text)
    if not len(alphabet):
        return np.full(len(codes), int(meaning["unknown"]), dtype=np.int64)
    places = np.minimum(np.searchsorted(alphabet, codes), len(alphabet) - 1)
    known = alphabet[places] == codes
    unknown = int(meaning["unknown"])
    return np.where(known, places + (unknown + 1), unknown).astype(np.int64)


def _code_points(text: str) -> Ints:
    return np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), dtype="<u4").astype(np.int64)
