from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
import torch

from boxcrew.data.transforms.draws import draws
from boxcrew.data.transforms.flip_shift_erase import Images
from boxcrew.data.transforms.policies import Policy, PolicyName

NAMES: list[Any] = list(get_args(PolicyName))


def images(num: int = 12, channels: int = 3) -> Images:
    rng = np.random.default_rng(num)
    smooth = np.linspace(0, 200, 28)[:, None, None] + rng.integers(0, 56, (num, 28, 28, channels))
    return smooth.astype(np.uint8)


def drawn(num: int, seed: int = 0) -> Any:
    return draws(seed, 0, np.arange(num), Policy.num_draws)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_keep_their_kind_and_are_not_changed(name: Any, channels: int) -> None:
    pictures = images(channels=channels)
    before = pictures.copy()
    outputs = Policy(name)(pictures, drawn(12))
    assert outputs.dtype == np.uint8
    assert outputs.shape == pictures.shape
    assert (pictures == before).all()
    assert (outputs != pictures).any(axis=(1, 2, 3)).sum() >= 6


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_changed_alike_in_whatever_batch(name: Any) -> None:
    pictures, numbers = images(), drawn(12)
    whole = Policy(name)(pictures, numbers)
    some = np.array([7, 2, 11])
    assert (Policy(name)(pictures[some], numbers[some]) == whole[some]).all()
    assert (Policy(name)(pictures, drawn(12, seed=1)) != whole).any()


@pytest.mark.parametrize("name", NAMES)
def test_torchs_own_random_numbers_go_on_as_if_nothing_had_been(name: Any) -> None:
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    Policy(name)(images(), drawn(12))
    assert torch.equal(torch.rand(3), wanted)


def test_a_gray_picture_is_treated_like_a_colored_one_that_is_gray() -> None:
    gray = images(40, channels=1)
    colored = np.repeat(gray, 3, axis=3)
    for name in NAMES:
        outputs = Policy(name)(gray, drawn(40))
        assert (outputs == Policy(name)(colored, drawn(40))[..., :1]).all()


def test_no_pictures_are_no_trouble() -> None:
    assert Policy("randaugment")(images(0), drawn(0)).shape == (0, 28, 28, 3)


def test_policies_differ() -> None:
    outputs = [Policy(name)(images(), drawn(12)) for name in NAMES]
    assert (outputs[0] != outputs[1]).any()
    assert (outputs[0] != outputs[2]).any()
    assert (outputs[1] != outputs[2]).any()
