"""Flips, shifts and erases many small images at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import cv2
import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from boxcrew.core.errors import UsageError
from boxcrew.data.transforms.draws import Draws

Images = npt.NDArray[np.uint8]
"""(n, height, width, channels), 0..255."""

_AREA = (0.02, 0.33)  # of an erased rectangle, as a fraction (Zhong et al. 2020, section 4.2)
_RATIO = (0.3, 1 / 0.3)  # its height / width


@dataclass(frozen=True, kw_only=True)
class FlipShiftErase:
    """Flips, shifts and erases each image by the random numbers of its sample."""

    num_draws: ClassVar[int] = 9

    flip: float = 0.0  # probability of a horizontal flip
    shift: int = 0  # largest shift in pixels, both ways; the border is filled by reflection
    erase: float = 0.0  # probability of a rectangle filled with one random level

    def __call__(self, images: Images, draws: Draws) -> Images:
        """Return changed images; `draws` (n, num_draws). The argument is not changed, but may be returned."""
        assert draws.shape == (len(images), self.num_draws), draws.shape
        if not len(images):
            return images
        if self.shift > 0:
            images = _shifted(images, draws[:, 1:3], limit=self.shift)
        if self.flip > 0:
            images = _flipped(images, draws[:, 0] < self.flip)
        if self.erase > 0:
            images = _erased(images, draws[:, 3] < self.erase, draws[:, 4:])
        return images


def _flipped(images: Images, chosen: npt.NDArray[np.bool_]) -> Images:
    """Flip the chosen images. To OpenCV, they are one high image, which it flips many times as fast."""
    flipped = images.copy()
    if chosen.any():
        before = images[chosen]
        flipped[chosen] = cv2.flip(before.reshape(-1, *before.shape[2:]), 1).reshape(before.shape)
    return flipped


def _shifted(images: Images, draws: Draws, *, limit: int) -> Images:
    height, width = images.shape[1:3]
    windows = sliding_window_view(_padded(images, limit), (height, width), axis=(1, 2))
    tops, lefts = (draws * (2 * limit + 1)).astype(np.intp).T
    # Windows come with their rows and columns after the channels.
    shifted: Images = windows.transpose(0, 1, 2, 4, 5, 3)[np.arange(len(images)), tops, lefts]
    return shifted


def _padded(images: Images, margin: int) -> Images:
    """Return images with a reflected border; np.pad takes several times as long."""
    num, height, width, channels = images.shape
    if margin >= min(height, width):
        raise UsageError(
            f"augment.shift={margin}: a shift must be smaller than the images, which are {width} x {height}",
            advice=f"use at most {min(height, width) - 1}",
        )
    padded = np.empty((num, height + 2 * margin, width + 2 * margin, channels), dtype=np.uint8)
    rows = images.reshape(num * height, width, channels)
    wide = cv2.copyMakeBorder(rows, 0, 0, margin, margin, cv2.BORDER_REFLECT_101)
    inner = padded[:, margin:-margin]
    inner[...] = wide.reshape(inner.shape)
    padded[:, :margin] = padded[:, 2 * margin : margin : -1]
    padded[:, -margin:] = padded[:, -margin - 2 : -2 * margin - 2 : -1]
    return padded


def _erased(images: Images, chosen: npt.NDArray[np.bool_], draws: Draws) -> Images:
    """Fill a rectangle of each chosen image; `draws` (n, 5) are area, ratio, top, left and level."""
    height, width = images.shape[1:3]
    areas = _AREA[0] + draws[:, 0] * (_AREA[1] - _AREA[0])
    ratios = _RATIO[0] * (_RATIO[1] / _RATIO[0]) ** draws[:, 1]  # as often wide as high
    heights = _sides(np.sqrt(areas * height * width * ratios), height)
    widths = _sides(np.sqrt(areas * height * width / ratios), width)
    tops = (draws[:, 2] * (height - heights + 1)).astype(np.intp)
    lefts = (draws[:, 3] * (width - widths + 1)).astype(np.intp)
    levels = (draws[:, 4] * 256).astype(np.uint8)
    erased = images.copy()
    for i in np.flatnonzero(chosen):
        erased[i, tops[i] : tops[i] + heights[i], lefts[i] : lefts[i] + widths[i]] = levels[i]
    return erased


def _sides(lengths: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.intp]:
    return np.clip(np.rint(lengths), 1, most).astype(np.intp)
