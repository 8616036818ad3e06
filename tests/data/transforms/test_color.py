from __future__ import annotations

import colorsys

import numpy as np
import pytest

from boxcrew.core.types import Image
from boxcrew.data.transforms.color import PhotometricDistortion, _shift_hsv


def colors() -> Image:
    return np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)


def test_gray_stays_gray_within_the_papers_range() -> None:
    """Saturation and hue leave gray alone, so a level shows brightness and contrast only."""
    image = np.full((4, 4, 3), 100, dtype=np.uint8)
    levels = []
    for seed in range(1500):
        changed = PhotometricDistortion()(image, np.random.default_rng(seed))
        assert len(np.unique(changed)) == 1
        levels.append(int(changed[0, 0, 0]))
    gray_levels = np.array(levels)
    assert gray_levels.min() >= (100 - 32) * 0.5 - 1
    assert gray_levels.max() <= (100 + 32) * 1.5 + 1
    assert gray_levels.min() < 45
    assert gray_levels.max() > 180
    assert 0.21 < (gray_levels == 100).mean() < 0.31  # both left alone, or by too little to see


@pytest.mark.parametrize(("saturation", "hue"), [(0.5, 0.0), (1.5, 0.0), (1.0, 18.0), (1.3, -18.0)])
def test_saturation_and_hue_match_the_definition(saturation: float, hue: float) -> None:
    image = colors()
    changed = _shift_hsv(image, saturation=saturation, hue=hue)
    worst = 0.0
    for before, after in zip(image.reshape(-1, 3), changed.reshape(-1, 3), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*(before / 255))
        exact = np.array(colorsys.hsv_to_rgb((h + hue / 360) % 1, min(1, s * saturation), v)) * 255
        worst = max(worst, float(np.abs(exact - after).max()))
    assert worst <= 6  # rounding of hue to 256 levels, twice: 1.4 degrees of the 60 that make 255


def test_strength_scales_the_change() -> None:
    image = colors()

    def change(strength: float) -> float:
        distort = PhotometricDistortion(strength=strength)
        changed = [distort(image, np.random.default_rng(seed)).astype(float) for seed in range(100)]
        return float(np.mean([np.abs(each - image).mean() for each in changed]))

    assert change(0) == 0
    assert 0 < change(0.25) < change(0.5) < change(1.0)


def test_the_image_given_is_not_changed() -> None:
    image = colors()
    before = image.copy()
    for seed in range(50):
        PhotometricDistortion()(image, np.random.default_rng(seed))
    assert (image == before).all()


def test_an_empty_image_takes_the_same_randomness() -> None:
    first, second = np.random.default_rng(3), np.random.default_rng(3)
    empty = PhotometricDistortion()(np.empty((0, 0, 3), dtype=np.uint8), first)
    PhotometricDistortion()(colors(), second)
    assert empty.size == 0
    assert first.random() == second.random()
