"""Draws small images with the names of their classes, enlarged so that people can see them."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt
from torch import Tensor

from boxcrew.core.types import Image, Ints
from boxcrew.data.images.drawing import draw_boxes

_SIDE = 160  # pixels that an image is enlarged to, at least


def draw_examples(
    images: Tensor, labels: Ints, classes: Sequence[str], scores: npt.NDArray[np.floating] | None = None
) -> list[Image]:
    """Draw `images`, uint8 (n, C, H, W), each with the name of its class."""
    drawn = []
    for index, label in enumerate(labels.tolist()):
        image = enlarged(images[index])
        frame = [[0, 0, image.shape[1], image.shape[0]]]
        score = None if scores is None else [float(scores[index])]
        drawn.append(draw_boxes(image, frame, [label], classes, score))
    return drawn


def enlarged(pixels: Tensor, *, side: int = _SIDE) -> Image:
    """Return uint8 (C, H, W), C 1 or 3, as RGB of at least `side` pixels in its longer side.

    The factor is an integer, so that pixels stay squares of one color.
    """
    image = np.ascontiguousarray(pixels.permute(1, 2, 0).numpy())
    if image.shape[2] == 1:
        image = np.repeat(image, 3, axis=2)
    factor = -(-side // max(image.shape[:2]))
    large: Image = cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_NEAREST).astype(
        np.uint8
    )
    return large
