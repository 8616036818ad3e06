"""Pictures of one shape from those of any."""

from __future__ import annotations

import cv2
import numpy as np

from boxcrew.data.examples.example_set import Wanted
from boxcrew.data.images.cache import Pixels

DEFAULT_SIDE = 32
LARGEST_OWN_SIDE = 256
"""Of pictures that are all of one size and are taken as they are, where nobody said how large."""

Shape = tuple[int, int, int]
"""(height, width, channels), of 1 or 3 channels."""


def shape_for(wanted: Wanted, own: Shape | None) -> Shape:
    """Of all pictures of a set. `own` is theirs where all have the same."""
    if wanted.shape is not None:
        return wanted.shape
    height, width, channels = own or (DEFAULT_SIDE, DEFAULT_SIDE, 3)
    if max(height, width) > LARGEST_OWN_SIDE:
        height = width = DEFAULT_SIDE
    if wanted.size is not None:
        height = width = wanted.size
    return height, width, channels


def fit(picture: Pixels, shape: Shape) -> Pixels:
    """`picture` (height, width, 1 or 3) in another shape. Its proportions are not kept."""
    height, width, channels = shape
    if picture.shape[:2] != (height, width):
        shrinks = picture.shape[0] >= height and picture.shape[1] >= width
        way = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR  # areas would make steps of enlarged pixels
        resized: Pixels = cv2.resize(picture, (width, height), interpolation=way)
        picture = resized.reshape(height, width, -1)  # a single channel was lost
    if picture.shape[2] == channels:
        return picture
    if channels == 3:
        return np.repeat(picture, 3, axis=2)
    grey: Pixels = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    return grey[..., None]
