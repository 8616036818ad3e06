"""Texts as tokens, a number for each character, and back.

A vocabulary is a mapping of JSON values: `alphabet`, `unknown` (the token of characters outside it), and for
texts of a fixed length also `length` and `unit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from boxcrew.core.types import PADDING, Ints

UNKNOWN_CHARACTER = "\N{REPLACEMENT CHARACTER}"

Unit = Literal["line", "file"]
"""The part of a text file that is one sample."""


def alphabet_of(texts: Iterable[str]) -> str:
    """Return all characters of the texts, sorted."""
    return "".join(sorted(set[str]().union(*texts)))


def text_vocabulary(texts: Iterable[str]) -> dict[str, Any]:
    """Return the vocabulary of running text: 0 is an unknown character, those of `texts` are 1, 2, …"""
    return {"alphabet": alphabet_of(texts), "unknown": 0}


def fixed_length_vocabulary(texts: Iterable[str], *, length: int, unit: Unit = "line") -> dict[str, Any]:
    """Return the vocabulary of texts of one length: 0 is padding at the end, 1 an unknown character, those of
    `texts` are 2, 3, …
    """
    return {"alphabet": alphabet_of(texts), "unknown": PADDING + 1, "length": length, "unit": unit}


def is_running_text(encoding: Mapping[str, Any]) -> bool:
    """Tell the vocabulary of running text from those of fixed length and from other encodings."""
    return "alphabet" in encoding and "length" not in encoding


def num_tokens(vocabulary: Mapping[str, Any]) -> int:
    return int(vocabulary["unknown"]) + 1 + len(vocabulary["alphabet"])


def encode_text(vocabulary: Mapping[str, Any], text: str) -> Ints:
    """Return the tokens (length,): truncated or padded to the vocabulary's length if it has one, else as long
    as the text.
    """
    if "length" in vocabulary:
        return encode_texts(vocabulary, [text]).reshape(-1)
    return _tokens(vocabulary, text)


def encode_texts(vocabulary: Mapping[str, Any], texts: Sequence[str]) -> Ints:
    """Return the tokens (N, length) for a vocabulary with a length."""
    length = int(vocabulary["length"])
    truncated = [text[:length] for text in texts]
    lengths = np.array([len(text) for text in truncated], dtype=np.int64)
    encoded = np.full((len(texts), length), PADDING, dtype=np.int64)
    encoded[np.arange(length) < lengths[:, None]] = _tokens(vocabulary, "".join(truncated))
    return encoded


def decode_tokens(vocabulary: Mapping[str, Any], tokens: Sequence[int] | Ints) -> str:
    """Return the characters without padding; `UNKNOWN_CHARACTER` stands for unknown ones."""
    unknown = int(vocabulary["unknown"])
    characters = UNKNOWN_CHARACTER + str(vocabulary["alphabet"])
    return "".join(characters[token - unknown] for token in np.asarray(tokens).tolist() if token >= unknown)


def unknown_characters(vocabulary: Mapping[str, Any], text: str) -> str:
    """Return the characters of a text that are not in the alphabet, each once, sorted."""
    return "".join(sorted(set(text) - set(vocabulary["alphabet"])))


def _tokens(vocabulary: Mapping[str, Any], text: str) -> Ints:
    # One vectorized lookup of code points: texts have millions of characters.
    alphabet, codes = _code_points(vocabulary["alphabet"]), _code_points(text)
    unknown = int(vocabulary["unknown"])
    if not len(alphabet):
        return np.full(len(codes), unknown, dtype=np.int64)
    indices = np.minimum(np.searchsorted(alphabet, codes), len(alphabet) - 1)
    return np.where(alphabet[indices] == codes, indices + (unknown + 1), unknown).astype(np.int64)


def _code_points(text: str) -> Ints:
    return np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), dtype="<u4").astype(np.int64)
