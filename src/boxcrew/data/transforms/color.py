"""Color changes of uint8 pixels, through lookup tables of 256 entries."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Image

_LEVELS = np.arange(256, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class PhotometricDistortion:
    """SSD's distortion: changes brightness, contrast, saturation and hue, each with probability 0.5.

    At strength 1: brightness +-32 levels, contrast and saturation x 0.5..1.5, hue +-18 degrees. Contrast
    comes before or after saturation and hue, equally often.
    """

    strength: float = 1.0

    def __call__(self, image: Image, rng: np.random.Generator) -> Image:
        """Return the distorted image; the argument is not changed, but may be returned."""
        brightness, contrast, saturation, hue = self.strength * rng.uniform(-1, 1, 4) * (rng.random(4) < 0.5)
        contrast_first = rng.random() < 0.5
        if not image.size:
            return image
        levels = _LEVELS
        if brightness:
            levels = levels + 32 * brightness
        if contrast and contrast_first:
            levels = np.clip(levels, 0, 255) * (1 + contrast / 2)
        image = _apply_table(image, levels)
        image = _shift_hsv(image, saturation=1 + saturation / 2, hue=18 * hue)
        if contrast and not contrast_first:
            image = _apply_table(image, _LEVELS * (1 + contrast / 2))
        return image


def _apply_table(image: Image, levels: npt.NDArray[np.float64]) -> Image:
    return image if levels is _LEVELS else cv2.LUT(image, _table(levels))


def _table(levels: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    # np.clip takes four times as long.
    return np.minimum(np.maximum(np.rint(levels), 0), 255).astype(np.uint8)


def _shift_hsv(image: Image, *, saturation: float, hue: float) -> Image:
    """Return the image with its saturation multiplied and its hue rotated by degrees."""
    if saturation == 1 and hue == 0:
        return image
    # With FULL, OpenCV writes the hue circle as 256 levels, but reads it as 255.
    turned = (_LEVELS + hue * (256 / 360)) % 256 * (255 / 256)
    hues, saturations, values = cv2.split(cv2.cvtColor(image, cv2.COLOR_RGB2HSV_FULL))
    # One plane at a time, in place: OpenCV looks up three tables at once at half the speed.
    cv2.LUT(hues, _table(turned), dst=hues)
    cv2.LUT(saturations, _table(_LEVELS * saturation), dst=saturations)
    hsv = cv2.merge((hues, saturations, values))
    result: Image = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL)
    return result
