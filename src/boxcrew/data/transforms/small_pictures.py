"""Changes of many small pictures at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import cv2
import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from boxcrew.core.errors import UsageError
from boxcrew.data.transforms.draws import Draws

Pictures = npt.NDArray[np.uint8]
"""(n, height, width, channels), 0..255."""

_AREA = (0.02, 0.33)  # of a picture that is erased, and its height / width (Zhong et al. 2020, section 4.2)
_RATIO = (0.3, 1 / 0.3)


@dataclass(frozen=True, kw_only=True)
class SmallPictures:
    """Flips, shifts and erases, each picture by its own draws."""

    num_draws: ClassVar[int] = 9

    flip: float = 0.0  # probability of left and right changing places
    shift: int = 0  # pixels up or down, and left or right, at most; the picture's mirror image comes in
    erase: float = 0.0  # probability of a rectangle of one random level

    def __call__(self, pictures: Pictures, draws: Draws) -> Pictures:
        """`draws` (n, num_draws). The pictures given are not changed, but may be returned."""
        assert draws.shape == (len(pictures), self.num_draws), draws.shape
        if not len(pictures):
            return pictures
        if self.shift > 0:
            pictures = _shifted(pictures, draws[:, 1:3], limit=self.shift)
        if self.flip > 0:
            pictures = _flipped(pictures, draws[:, 0] < self.flip)
        if self.erase > 0:
            pictures = _erased(pictures, draws[:, 3] < self.erase, draws[:, 4:])
        return pictures


def _flipped(pictures: Pictures, chosen: npt.NDArray[np.bool_]) -> Pictures:
    """Rows of pictures are rows of one high image to OpenCV, which turns them many times as fast."""
    flipped = pictures.copy()
    if chosen.any():
        before = pictures[chosen]
        flipped[chosen] = cv2.flip(before.reshape(-1, *before.shape[2:]), 1).reshape(before.shape)
    return flipped


def _shifted(pictures: Pictures, draws: Draws, *, limit: int) -> Pictures:
    height, width = pictures.shape[1:3]
    windows = sliding_window_view(_padded(pictures, limit), (height, width), axis=(1, 2))
    tops, lefts = (draws * (2 * limit + 1)).astype(np.intp).T
    # Windows come with their rows and columns after the channels.
    shifted: Pictures = windows.transpose(0, 1, 2, 4, 5, 3)[np.arange(len(pictures)), tops, lefts]
    return shifted


def _padded(pictures: Pictures, margin: int) -> Pictures:
    """np.pad takes several times as long."""
    num, height, width, channels = pictures.shape
    if margin >= min(height, width):
        raise UsageError(
            f"augment.shift={margin}: pictures of {width} x {height} have no mirror image so large",
            advice=f"at most {min(height, width) - 1}",
        )
    padded = np.empty((num, height + 2 * margin, width + 2 * margin, channels), dtype=np.uint8)
    rows = pictures.reshape(num * height, width, channels)
    wide = cv2.copyMakeBorder(rows, 0, 0, margin, margin, cv2.BORDER_REFLECT_101)
    inner = padded[:, margin:-margin]
    inner[...] = wide.reshape(inner.shape)
    padded[:, :margin] = padded[:, 2 * margin : margin : -1]
    padded[:, -margin:] = padded[:, -margin - 2 : -2 * margin - 2 : -1]
    return padded


def _erased(pictures: Pictures, chosen: npt.NDArray[np.bool_], draws: Draws) -> Pictures:
    """`draws` (n, 5): area, ratio, top, left, level."""
    height, width = pictures.shape[1:3]
    areas = _AREA[0] + draws[:, 0] * (_AREA[1] - _AREA[0])
    ratios = _RATIO[0] * (_RATIO[1] / _RATIO[0]) ** draws[:, 1]  # as often flat as high
    heights = _sides(np.sqrt(areas * height * width * ratios), height)
    widths = _sides(np.sqrt(areas * height * width / ratios), width)
    tops = (draws[:, 2] * (height - heights + 1)).astype(np.intp)
    lefts = (draws[:, 3] * (width - widths + 1)).astype(np.intp)
    levels = (draws[:, 4] * 256).astype(np.uint8)
    erased = pictures.copy()
    for i in np.flatnonzero(chosen):
        erased[i, tops[i] : tops[i] + heights[i], lefts[i] : lefts[i] + widths[i]] = levels[i]
    return erased


def _sides(lengths: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.intp]:
    return np.clip(np.rint(lengths), 1, most).astype(np.intp)
