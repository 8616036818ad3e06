"""Small pictures inside a page: photos, or parts of them, with boxes laid over as lines of their own."""

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
from boxcrew.report.doctor.markup import Html, data_uri, element

_QUALITY = 78  # of JPEG
_SURROUNDINGS = 1.7  # sides of what is shown around a box, in longest sides of it
_PAPER = 240  # grey
_LEAST_SEEN = 0.04  # sides of a box as drawn, in longest sides of the picture
_LEAST = 72.0  # pixels of the photo that are shown at least: a tiny box needs its surroundings


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A box in pixels of the photo, and the colour of its lines."""

    box: Box
    colour: str
    dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Shot:
    """A picture to be made."""

    read: Callable[[], Image]
    alt: str  # what is seen, for those who cannot
    frames: tuple[Frame, ...] = ()
    around: Box | None = None  # the part to show, with its surroundings; None: all of the photo
    side: int = 320  # the longest, in pixels; nothing is enlarged


def develop(shots: Sequence[Shot], *, workers: int) -> list[Html | None]:
    """Each as markup; None where the photo cannot be read (any more)."""
    with ThreadPoolExecutor(max_workers=workers) as pool:
        return list(pool.map(_develop, shots))


def read_what_is_left(path: Path) -> Image:
    """As much of a file that is cut short as can be decoded, the rest black; `DataError` if it is nothing."""
    read_header(path)  # refuses bombs
    try:
        with Pillow.open(path) as file:
            file.draft("RGB", (640, 640))
            with suppress(*DECODING_FAULTS):
                file.load()
            file.tile = []  # what has been decoded until here is all there will be
            pixels = np.array(file.convert("RGB"))
    except DECODING_FAULTS as error:
        raise DataError(f"{path}: nothing of it can be shown: {error}") from error
    if not pixels.any():
        raise DataError(f"{path}: nothing of it can be shown")
    return pixels


def _develop(shot: Shot) -> Html | None:
    try:
        photo = shot.read()
    except DataError:
        return None
    left, top, right, bottom = _window(shot.around, photo)
    part = _cut(photo, (left, top, right, bottom), side=shot.side)
    _, encoded = cv2.imencode(
        ".jpg", cv2.cvtColor(part, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, _QUALITY]
    )
    width, height = right - left, bottom - top
    picture = element("img", src=data_uri("image/jpeg", encoded.tobytes()), alt=shot.alt)
    lines = [_rect(frame, (left, top), (width, height)) for frame in shot.frames]
    overlay = [
        element(
            "svg",
            *lines,
            viewbox=f"0 0 {width} {height}",
            preserveAspectRatio="none",
            aria_hidden="true",
        )
    ] * bool(lines)
    return element("span", picture, *overlay, class_="picture", style=f"--ratio:{width / height:.3f}")


def _window(around: Box | None, photo: Image) -> tuple[int, int, int, int]:
    """A square about the box, moved into the photo as far as it goes; or all of the photo."""
    high, wide = photo.shape[:2]
    if around is None:
        return 0, 0, wide, high
    x0, y0, x1, y1 = around
    side = int(min(max(_LEAST, _SURROUNDINGS * max(x1 - x0, y1 - y0)), max(wide, high)))

    def start(middle: float, whole: int) -> int:
        if side >= whole:
            return (whole - side) // 2
        return min(max(0, int(middle - side / 2)), whole - side)

    left, top = start((x0 + x1) / 2, wide), start((y0 + y1) / 2, high)
    return left, top, left + side, top + side


def _cut(photo: Image, window: tuple[int, int, int, int], *, side: int) -> Image:
    """The window of the photo, its longest side at most `side`; where it reaches out, it is paper. It is
    reduced before it is laid on the paper, which about a long photo would be many times larger.
    """
    left, top, right, bottom = window
    high, wide = photo.shape[:2]
    scale = min(1.0, side / max(right - left, bottom - top))

    def place(at: int, origin: int) -> int:
        return round((at - origin) * scale)

    x0, x1, y0, y1 = max(0, left), min(wide, right), max(0, top), min(high, bottom)
    part = photo[y0:y1, x0:x1]
    rows = slice(place(y0, top), max(place(y1, top), place(y0, top) + 1))
    columns = slice(place(x0, left), max(place(x1, left), place(x0, left) + 1))
    shape = max(place(bottom, top), rows.stop), max(place(right, left), columns.stop)
    paper = np.full((*shape, 3), _PAPER, dtype=np.uint8)
    if scale < 1:
        size = columns.stop - columns.start, rows.stop - rows.start
        part = cv2.resize(part, size, interpolation=cv2.INTER_AREA)
    paper[rows, columns] = part
    return paper


def _rect(frame: Frame, origin: tuple[int, int], size: tuple[int, int]) -> Html:
    """Two lines, one on the other, so that the box is seen on light and dark ground. What lies outside the
    picture is drawn at its rim, and a box of hardly any area as one that can be seen.
    """
    least = _LEAST_SEEN * max(size)
    (left, right), (top, bottom) = (
        _seen(frame.box[i::2], start=origin[i], length=size[i], least=least) for i in (0, 1)
    )
    corners = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    dashes = "5 4" if frame.dashed else None
    return Html(
        element("rect", class_="under", **corners)
        + element("rect", class_="line", stroke=frame.colour, stroke_dasharray=dashes, **corners)
    )


def _seen(ends: tuple[float, ...], *, start: int, length: int, least: float) -> tuple[float, float]:
    """Both ends of a side in the picture, in order, no nearer to each other than `least`."""
    low, high = sorted(min(max(0.0, end - start), float(length)) for end in ends)
    room = max(0.0, least - (high - low)) / 2
    return low - room, high + room
