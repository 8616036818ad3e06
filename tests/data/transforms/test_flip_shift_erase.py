from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from boxcrew.core.errors import UsageError
from boxcrew.data.transforms.draws import draws
from boxcrew.data.transforms.flip_shift_erase import FlipShiftErase, Images

ALL = FlipShiftErase(flip=0.5, shift=3, erase=0.5)


def images(num: int = 8, *, side: int = 28, channels: int = 1) -> Images:
    return np.random.default_rng(num).integers(0, 256, (num, side, side + 2, channels), dtype=np.uint8)


def drawn(num: int, seed: int = 0) -> Any:
    return draws(seed, 0, np.arange(num), FlipShiftErase.num_draws)


def one_draw(**numbers: float) -> Any:
    names = ["flip", "down", "right", "erase", "area", "ratio", "top", "left", "level"]
    return np.array([[numbers.get(name, 0.5) for name in names]])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "change", [ALL, FlipShiftErase(flip=1.0), FlipShiftErase(shift=3), FlipShiftErase(erase=1.0)]
)
def test_pictures_keep_their_kind_and_are_not_changed(change: FlipShiftErase, channels: int) -> None:
    pictures = images(channels=channels)
    before = pictures.copy()
    outputs = change(pictures, drawn(8))
    assert outputs.shape == pictures.shape
    assert outputs.dtype == np.uint8
    assert outputs.flags.c_contiguous
    assert (pictures == before).all()
    assert not np.shares_memory(outputs, pictures)
    assert (outputs != pictures).any(axis=(1, 2, 3)).sum() > 6


def test_a_picture_is_changed_alike_in_whatever_batch() -> None:
    pictures, numbers = images(20, channels=3), drawn(20)
    whole = ALL(pictures, numbers)
    some = np.array([13, 2, 7])
    assert (ALL(pictures[some], numbers[some]) == whole[some]).all()
    assert (ALL(pictures[5:6], numbers[5:6]) == whole[5]).all()
    assert ALL(pictures[:0], numbers[:0]).shape == (0, *pictures.shape[1:])


def test_everything_off_changes_nothing() -> None:
    pictures = images()
    assert (FlipShiftErase()(pictures, drawn(8)) == pictures).all()


def test_flips_are_as_often_as_asked() -> None:
    pictures = images(2000, side=4)
    outputs = FlipShiftErase(flip=0.3)(pictures, drawn(2000))
    flipped = (outputs == pictures[:, :, ::-1]).all(axis=(1, 2, 3))
    assert (outputs[~flipped] == pictures[~flipped]).all()
    assert flipped.mean() == pytest.approx(0.3, abs=0.04)


def test_shifts_move_the_picture_and_every_one_comes_up() -> None:
    pictures = images(3000, side=10)
    outputs = FlipShiftErase(shift=2)(pictures, drawn(3000))
    wide = np.pad(pictures, ((0, 0), (2, 2), (2, 2), (0, 0)), mode="reflect")
    counts = np.zeros((5, 5))
    for top in range(5):
        for left in range(5):
            counts[top, left] = (
                (outputs == wide[:, top : top + 10, left : left + 12]).all(axis=(1, 2, 3)).sum()
            )
    assert counts.sum() == 3000
    assert np.abs(counts / 120 - 1).max() < 0.4


@pytest.mark.parametrize("shift", [1, 3, 9])
def test_what_comes_in_is_the_mirror_image(shift: int) -> None:
    pictures = images(60, side=10, channels=3)
    wide = np.pad(pictures, ((0, 0), (shift, shift), (shift, shift), (0, 0)), mode="reflect")
    outputs = FlipShiftErase(shift=shift)(pictures, drawn(60))
    tops, lefts = (drawn(60)[:, 1:3] * (2 * shift + 1)).astype(int).T
    for i in range(60):
        assert (outputs[i] == wide[i, tops[i] : tops[i] + 10, lefts[i] : lefts[i] + 12]).all()


def test_a_shift_larger_than_the_mirror_image_is_refused() -> None:
    with pytest.raises(UsageError, match=r"augment\.shift=10: a shift must be smaller.*, which are 12 x 10"):
        FlipShiftErase(shift=10)(images(1, side=10), drawn(1))


def test_a_rectangle_of_one_level_is_erased() -> None:
    pictures = np.full((500, 30, 20, 3), 255, dtype=np.uint8)
    outputs = FlipShiftErase(erase=1.0)(pictures, drawn(500))
    areas, ratios, levels = [], [], set()
    for picture, level in zip(outputs, drawn(500)[:, 8], strict=True):
        rows, columns = ((picture != 255).any(axis=(1, 2)), (picture != 255).any(axis=(0, 2)))
        if int(level * 256) == 255:
            continue
        inside = picture[np.flatnonzero(rows)[0] : np.flatnonzero(rows)[-1] + 1]
        inside = inside[:, np.flatnonzero(columns)[0] : np.flatnonzero(columns)[-1] + 1]
        assert (inside == int(level * 256)).all()
        areas.append(inside.shape[0] * inside.shape[1] / 600)
        ratios.append(inside.shape[0] / inside.shape[1])
        levels.add(int(inside[0, 0, 0]))
    assert 0.01 < min(areas) < 0.04
    assert 0.29 < max(areas) < 0.36
    assert 0.2 < min(ratios) < 0.5
    assert 2 < max(ratios) < 5
    assert len(levels) > 150


def test_rectangles_are_everywhere_and_as_often_as_asked() -> None:
    pictures = np.full((4000, 12, 12, 1), 255, dtype=np.uint8)
    mask = FlipShiftErase(erase=0.4)(pictures, drawn(4000)) != 255
    assert mask.any(axis=(1, 2, 3)).mean() == pytest.approx(0.4, abs=0.03)
    often = mask.mean(axis=0)[..., 0]
    assert often.min() > 0.005
    np.testing.assert_allclose(often, often[::-1, ::-1], atol=0.02)


@pytest.mark.parametrize("extreme", [0.0, 1 - 2**-53])
def test_the_ends_of_the_draws_stay_inside(extreme: float) -> None:
    names = ["down", "right", "area", "ratio", "top", "left", "level"]
    numbers = one_draw(flip=0, erase=0, **dict.fromkeys(names, extreme))
    for side in (4, 28):
        output = ALL(images(1, side=side), numbers)
        assert output.shape == (1, side, side + 2, 1)
        assert (output == (255 if extreme else 0)).any()


def test_draws_of_another_number_are_refused() -> None:
    with pytest.raises(AssertionError):
        ALL(images(3), drawn(2))
