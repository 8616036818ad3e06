"""Small pictures with the names of their classes, large enough to look at."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt
from torch import Tensor

from boxcrew.core.types import Image, Ints
from boxcrew.data.images.drawing import draw_boxes

_SIDE = 160  # pixels that a picture is enlarged to, at least


def draw_examples(
    pictures: Tensor, labels: Ints, classes: Sequence[str], scores: npt.NDArray[np.floating] | None = None
) -> list[Image]:
    """`pictures` uint8 (n, C, H, W)."""
    drawn = []
    for place, label in enumerate(labels.tolist()):
        picture = enlarged(pictures[place])
        whole = [[0, 0, picture.shape[1], picture.shape[0]]]
        score = None if scores is None else [float(scores[place])]
        drawn.append(draw_boxes(picture, whole, [label], classes, score))
    return drawn


def enlarged(picture: Tensor, *, side: int = _SIDE) -> Image:
    """uint8 (C, H, W), C 1 or 3 -> RGB, at least `side` pixels wide or high, by a whole factor, so that
    pixels stay what they are.
    """
    image = np.ascontiguousarray(picture.permute(1, 2, 0).numpy())
    if image.shape[2] == 1:
        image = np.repeat(image, 3, axis=2)
    factor = -(-side // max(image.shape[:2]))
    large: Image = cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_NEAREST).astype(
        np.uint8
    )
    return large
