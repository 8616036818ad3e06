"""Images of any size are resized to the one shape that all inputs of a set have."""

from __future__ import annotations

import cv2
import numpy as np

from boxcrew.data.examples.example_set import ExampleOptions
from boxcrew.data.images.cache import Pixels

DEFAULT_SIDE = 32
LARGEST_OWN_SIDE = 256
"""Images that all have one size up to this keep it, unless a size is set."""

Shape = tuple[int, int, int]
"""(height, width, channels), of 1 or 3 channels."""


def choose_shape(options: ExampleOptions, common: Shape | None) -> Shape:
    """Return the shape of all inputs of a set. `common` is the shape its images have if they all agree."""
    if options.shape is not None:
        return options.shape
    height, width, channels = common or (DEFAULT_SIDE, DEFAULT_SIDE, 3)
    if max(height, width) > LARGEST_OWN_SIDE:
        height = width = DEFAULT_SIDE
    if options.size is not None:
        height = width = options.size
    return height, width, channels


def resize_to(image: Pixels, shape: Shape) -> Pixels:
    """Resize an image (height, width, 1 or 3) and convert its channels. The aspect ratio is not kept."""
    height, width, channels = shape
    if image.shape[:2] != (height, width):
        shrinks = image.shape[0] >= height and image.shape[1] >= width
        method = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR  # enlarging by area shows blocks
        resized: Pixels = cv2.resize(image, (width, height), interpolation=method)
        image = resized.reshape(height, width, -1)  # OpenCV drops a single channel
    if image.shape[2] == channels:
        return image
    if channels == 3:
        return np.repeat(image, 3, axis=2)
    gray: Pixels = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    return gray[..., None]
