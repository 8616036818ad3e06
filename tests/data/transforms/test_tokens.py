from __future__ import annotations

import numpy as np
import pytest

from boxcrew.data.transforms.draws import draws
from boxcrew.data.transforms.tokens import drop_tokens


def test_real_tokens_alone_are_dropped_as_often_as_asked() -> None:
    tokens = np.random.default_rng(0).integers(0, 5, (300, 40))
    before = tokens.copy()
    outputs = drop_tokens(tokens, draws(0, 0, np.arange(300), 40), p=0.2, mask=9)
    assert outputs.dtype == np.int64
    assert (tokens == before).all()
    assert (outputs[tokens == 0] == 0).all()
    dropped = outputs == 9
    assert (outputs[~dropped] == tokens[~dropped]).all()
    assert dropped[tokens != 0].mean() == pytest.approx(0.2, abs=0.02)


def test_nothing_and_everything() -> None:
    tokens = np.array([[3, 2, 0]])
    numbers = draws(0, 0, np.arange(1), 3)
    assert drop_tokens(tokens, numbers, p=0.0, mask=9).tolist() == [[3, 2, 0]]
    assert drop_tokens(tokens, numbers, p=1.0, mask=9).tolist() == [[9, 9, 0]]


def test_a_sequence_is_changed_alike_in_whatever_batch() -> None:
    tokens = np.random.default_rng(0).integers(0, 5, (30, 40))
    whole = drop_tokens(tokens, draws(0, 0, np.arange(30), 40), p=0.5, mask=9)
    some = np.array([20, 4])
    assert (drop_tokens(tokens[some], draws(0, 0, some, 40), p=0.5, mask=9) == whole[some]).all()
