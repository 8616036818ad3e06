"""Thumbnails inside an HTML page: images, or crops of them, with boxes drawn over them as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image as Pillow

from boxcrew.core.errors import DataError
from boxcrew.core.types import Image
from boxcrew.data.checks.box_repair import Box
from boxcrew.data.images.reading import DECODING_FAULTS, read_header
from boxcrew.report.doctor.markup import Html, data_uri, element, join

_QUALITY = 78  # of JPEG
_CROP_FACTOR = 1.7  # side of a crop around a box, in longest sides of the box
_BACKGROUND = 240  # gray
_MIN_BOX = 0.04  # least side of a drawn box, in longest sides of the thumbnail
_MIN_CROP = 72.0  # pixels: a tiny box needs its surroundings


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A box in pixels of the image, and the color of its outline."""

    box: Box
    color: str
    dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Thumbnail:
    """A thumbnail to be rendered."""

    read: Callable[[], Image]
    alt: str  # text for those who cannot see it
    frames: tuple[Frame, ...] = ()
    around: Box | None = None  # the box to crop around; None: the complete image
    side: int = 320  # longest side in pixels; images are never enlarged
    caption: str = ""


def render_figures(thumbnails: Sequence[Thumbnail], *, workers: int) -> list[Html]:
    """Return each thumbnail as a figure with its caption; an empty text if its image cannot be read."""
    with ThreadPoolExecutor(max_workers=workers) as pool:
        return list(pool.map(_render, thumbnails))


def read_partial_image(path: Path) -> Image:
    """Decode as much as possible of a truncated file, the rest black; `DataError` if there is nothing."""
    read_header(path)  # refuses bombs
    try:
        with Pillow.open(path) as file:
            file.draft("RGB", (640, 640))
            with suppress(*DECODING_FAULTS):
                file.load()
            file.tile = []  # keep what has been decoded so far
            pixels = np.array(file.convert("RGB"))
    except DECODING_FAULTS as error:
        raise DataError(f"{path}: nothing of it can be decoded: {error}") from error
    if not pixels.any():
        raise DataError(f"{path}: nothing of it can be decoded")
    return pixels


def _render(thumbnail: Thumbnail) -> Html:
    try:
        image = thumbnail.read()
    except DataError:
        return Html("")
    window = left, top, right, bottom = _window(thumbnail.around, image)
    crop = cv2.cvtColor(_crop(image, window, side=thumbnail.side), cv2.COLOR_RGB2BGR)
    _, encoded = cv2.imencode(".jpg", crop, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    width, height = right - left, bottom - top
    parts = [element("img", src=data_uri("image/jpeg", encoded.tobytes()), alt=thumbnail.alt)]
    if lines := [_rect(frame, (left, top), (width, height)) for frame in thumbnail.frames]:
        view = f"0 0 {width} {height}"
        parts.append(element("svg", *lines, viewbox=view, preserveAspectRatio="none", aria_hidden="true"))
    picture = element("span", *parts, class_="picture", style=f"--ratio:{width / height:.3f}")
    return element("figure", picture, thumbnail.caption)


def _window(around: Box | None, image: Image) -> tuple[int, int, int, int]:
    """Return left, top, right, bottom of a square around the box, inside the image if possible."""
    high, wide = image.shape[:2]
    if around is None:
        return 0, 0, wide, high
    x0, y0, x1, y1 = around
    side = int(min(max(_MIN_CROP, _CROP_FACTOR * max(x1 - x0, y1 - y0)), max(wide, high)))

    def start(middle: float, length: int) -> int:
        if side >= length:
            return (length - side) // 2
        return min(max(0, int(middle - side / 2)), length - side)

    left, top = start((x0 + x1) / 2, wide), start((y0 + y1) / 2, high)
    return left, top, left + side, top + side


def _crop(image: Image, window: tuple[int, int, int, int], *, side: int) -> Image:
    """Crop the window, with a background where it reaches outside, to a longest side of at most `side`.
    The crop is resized before it is pasted: around a long image the background would be many times larger.
    """
    left, top, right, bottom = window
    high, wide = image.shape[:2]
    scale = min(1.0, side / max(right - left, bottom - top))

    def scaled(at: int, origin: int) -> int:
        return round((at - origin) * scale)

    x0, x1, y0, y1 = max(0, left), min(wide, right), max(0, top), min(high, bottom)
    crop = image[y0:y1, x0:x1]
    rows = slice(scaled(y0, top), max(scaled(y1, top), scaled(y0, top) + 1))
    columns = slice(scaled(x0, left), max(scaled(x1, left), scaled(x0, left) + 1))
    shape = max(scaled(bottom, top), rows.stop), max(scaled(right, left), columns.stop)
    canvas = np.full((*shape, 3), _BACKGROUND, dtype=np.uint8)
    if scale < 1:
        size = columns.stop - columns.start, rows.stop - rows.start
        crop = cv2.resize(crop, size, interpolation=cv2.INTER_AREA)
    canvas[rows, columns] = crop
    return canvas


def _rect(frame: Frame, origin: tuple[int, int], size: tuple[int, int]) -> Html:
    """Draw a box as two outlines, one over the other, to be visible on light and dark images.
    What lies outside the thumbnail is drawn at its border, and a tiny box with a visible size.
    """
    sides = []
    for i in (0, 1):
        low, high = sorted(min(max(0.0, end - origin[i]), float(size[i])) for end in frame.box[i::2])
        room = max(0.0, _MIN_BOX * max(size) - (high - low)) / 2
        sides.append((low - room, high + room))
    (left, right), (top, bottom) = sides
    corners = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    dashes = "5 4" if frame.dashed else None
    line = element("rect", class_="line", stroke=frame.color, stroke_dasharray=dashes, **corners)
    return join(element("rect", class_="under", **corners), line)
