from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from boxcrew.data.examples.alphabet import (
    alphabet_of,
    decode_tokens,
    encode_text,
    fixed_length_vocabulary,
    num_tokens,
    text_vocabulary,
)


@given(st.text(max_size=40), st.integers(0, 20))
def test_what_is_encoded_can_be_decoded(text: str, length: int) -> None:
    running, bounded = text_vocabulary([text]), fixed_length_vocabulary([text], length=length)
    assert decode_tokens(running, encode_text(running, text)) == text
    assert decode_tokens(bounded, encode_text(bounded, text)) == text[:length]
    assert len(encode_text(bounded, text)) == length
    assert encode_text(bounded, text).max(initial=0) < num_tokens(bounded)
    assert encode_text(running, text).max(initial=0) < num_tokens(running)


def test_characters_are_numbered_in_their_order() -> None:
    assert alphabet_of(["ba", "c😀a", ""]) == "abc😀"
    assert encode_text(text_vocabulary(["cab"]), "abcd").tolist() == [1, 2, 3, 0]
    assert encode_text(fixed_length_vocabulary(["cab"], length=6), "abcd").tolist() == [2, 3, 4, 1, 0, 0]


def test_what_is_not_known_is_shown_as_such() -> None:
    vocabulary = json.loads(json.dumps(text_vocabulary(["ab"])))
    assert decode_tokens(vocabulary, encode_text(vocabulary, "a?b\udcff")) == "a\ufffdb\ufffd"
    assert encode_text(text_vocabulary([]), "ab").tolist() == [0, 0]
