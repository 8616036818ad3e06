"""Draws boxes on an image, and many images on one sheet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Floats, Image

Color = tuple[int, int, int]
"""RGB, 0..255."""

# The first classes get the seven colors of Okabe and Ito and a dark red, which people with any kind of color
# vision can distinguish.
_FIRST: tuple[Color, ...] = (
    (230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66),
    (0, 114, 178), (213, 94, 0), (204, 121, 167), (136, 34, 85),
)  # fmt: skip
_LIGHTNESS = (72.0, 45.0, 86.0, 58.0)  # of further classes, in rotation: not everyone distinguishes hues
_GOLDEN_ANGLE = 137.508  # degrees: successive hues stay far apart however many there are
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_CELL = 640  # longest side of a cell of a sheet, in pixels


@lru_cache(maxsize=1024)
def class_color(label: int) -> Color:
    """Return the color of a class in every image and plot."""
    if label < len(_FIRST):
        return _FIRST[label]
    number = label - len(_FIRST)
    hue = np.radians(20.0 + number * _GOLDEN_ANGLE)
    lightness = _LIGHTNESS[number % len(_LIGHTNESS)]
    lab = np.array([[[lightness, 55.0 * np.cos(hue), 55.0 * np.sin(hue)]]], dtype=np.float32)
    red, green, blue = np.rint(cv2.cvtColor(lab, cv2.COLOR_LAB2RGB)[0, 0] * 255).astype(int).tolist()
    return red, green, blue


def draw_boxes(
    image: Image,
    boxes: npt.ArrayLike,
    labels: npt.ArrayLike,
    classes: Sequence[str],
    scores: npt.ArrayLike | None = None,
) -> Image:
    """Return a copy of `image` with boxes (N, 4) in its pixels, each with a tag of its class name and score.
    Lines lie inside their boxes, and their width grows with the image. The best detections are drawn last;
    without scores, the smallest boxes.
    """
    corners = np.asarray(boxes, dtype=np.float32).reshape(-1, 4)
    numbers: list[int] = np.asarray(labels, dtype=np.int64).reshape(-1).tolist()
    names = [classes[number] for number in numbers]
    if scores is None:
        sides = corners[:, 2:] - corners[:, :2]
        order = np.argsort(-sides[:, 0] * sides[:, 1], kind="stable")
    else:
        values = np.asarray(scores, dtype=np.float32).reshape(-1)
        names = [f"{name}  {score:.2f}" for name, score in zip(names, values, strict=True)]
        order = np.argsort(values, kind="stable")
    pen, canvas = _Pen.for_image(image), np.ascontiguousarray(image).copy()
    for i in order:
        _draw_frame(canvas, corners[i], class_color(numbers[i]), pen.width)
    tags = _choose_tags(canvas, [(corners[i], names[i]) for i in order[::-1]], pen)[::-1]
    for i, tag in zip(order, tags, strict=True):  # after all frames, so that no line crosses a name
        _draw_tag(canvas, tag, class_color(numbers[i]), pen)
    return canvas


def grid(images: Sequence[Image], *, columns: int, gap: int) -> Image:
    """Return a white sheet with the images row by row, `gap` pixels apart and around. Every cell has the
    median width and height of the images, at most 640 pixels a side; images of another size are scaled to
    fit and centered.
    """
    height, width = np.median([image.shape[:2] for image in images], axis=0).tolist()
    shrink = min(1.0, _CELL / max(width, height))
    width, height = round(width * shrink), round(height * shrink)
    rows = -(-len(images) // columns)
    sheet = np.full((rows * (height + gap) + gap, columns * (width + gap) + gap, 3), 255, dtype=np.uint8)
    for i, image in enumerate(images):
        top, left = gap + (i // columns) * (height + gap), gap + (i % columns) * (width + gap)
        sheet[top : top + height, left : left + width] = _letterbox(image, width, height)
    return sheet


@dataclass(frozen=True, kw_only=True)
class _Pen:
    """Sizes of lines and letters that suit an image."""

    width: int  # of lines, in pixels
    scale: float  # of the font
    stroke: int  # of the letters
    margin: int  # around the letters, in pixels

    @classmethod
    def for_image(cls, image: Image) -> _Pen:
        side = (image.shape[0] * image.shape[1]) ** 0.5
        scale = max(0.35, 0.30 + side / 2600)  # smaller letters are not readable
        width, stroke, margin = (max(1, round(size)) for size in (side / 190, scale * 1.3, scale * 7))
        return cls(width=width, scale=scale, stroke=stroke, margin=margin)


def _draw_frame(canvas: Image, box: Floats, color: Color, width: int) -> None:
    left, top, right, bottom = _pixels(box, canvas)
    x, y = (min(width, max(1, side // 2)) for side in (right - left, bottom - top))
    canvas[top : top + y, left:right] = canvas[bottom - y : bottom, left:right] = color
    canvas[top:bottom, left : left + x] = canvas[top:bottom, right - x : right] = color


@dataclass(frozen=True, kw_only=True)
class _Tag:
    """A text and the rectangle it is written on, in pixels."""

    text: str
    left: int
    top: int
    width: int
    height: int

    def overlaps(self, other: _Tag) -> bool:
        across = abs(2 * (self.left - other.left) + self.width - other.width)
        down = abs(2 * (self.top - other.top) + self.height - other.height)
        return across < self.width + other.width and down < self.height + other.height


def _choose_tags(canvas: Image, named: Sequence[tuple[Floats, str]], pen: _Pen) -> list[_Tag]:
    """Return for each box and name the first choice that overlaps no earlier tag, or the first if all do."""
    chosen: list[_Tag] = []
    for box, name in named:
        choices = _choices(canvas, box, name, pen)
        free = (tag for tag in choices if not any(tag.overlaps(other) for other in chosen))
        chosen.append(next(free, choices[0]))
    return chosen


def _choices(canvas: Image, box: Floats, name: str, pen: _Pen) -> list[_Tag]:
    """Return tags above the box if there is room, below and inside it, left or right; all in the image."""
    left, top, right, bottom = _pixels(box, canvas)
    high, wide = canvas.shape[:2]
    text, (text_width, text_height), descent = _fit(name, wide - 2 * pen.margin, pen)
    width, height = min(wide, text_width + 2 * pen.margin), min(high, text_height + descent + pen.margin)
    inside = min(top, high - height)
    rows = [top - height, bottom, inside] if top >= height else [inside, bottom]
    rows = [y for y in rows if y <= high - height]
    columns = [max(0, min(x, wide - width)) for x in (left, right - width)]
    return [_Tag(text=text, left=x, top=y, width=width, height=height) for y in rows for x in columns]


def _draw_tag(canvas: Image, tag: _Tag, color: Color, pen: _Pen) -> None:
    canvas[tag.top : tag.top + tag.height, tag.left : tag.left + tag.width] = color
    descent = cv2.getTextSize("g", _FONT, pen.scale, pen.stroke)[1]
    origin = (tag.left + pen.margin, tag.top + tag.height - descent - pen.margin // 2)
    # The relative luminance, 0..1: above 0.18 black has more contrast than white (WCAG 2).
    red, green, blue = ((value / 255) ** 2.2 for value in color)
    ink = (0, 0, 0) if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else (255, 255, 255)
    cv2.putText(canvas, tag.text, origin, _FONT, pen.scale, ink, pen.stroke, cv2.LINE_AA)


def _fit(text: str, room: int, pen: _Pen) -> tuple[str, tuple[int, int], int]:
    """Return the longest start of the text that is at most `room` pixels wide, its size, and its descent."""
    for length in range(len(text), 0, -1):
        size, descent = cv2.getTextSize(text[:length], _FONT, pen.scale, pen.stroke)
        if size[0] <= room:
            return text[:length], size, descent
    return "", (0, 0), 0


def _pixels(box: Floats, canvas: Image) -> tuple[int, int, int, int]:
    """Return the box in whole pixels within the canvas, at least one pixel wide and high."""
    high, wide = canvas.shape[:2]
    left, top, right, bottom = np.rint(np.nan_to_num(box)).astype(int).tolist()
    left, top = max(0, min(left, wide - 1)), max(0, min(top, high - 1))
    return left, top, max(left + 1, min(right, wide)), max(top + 1, min(bottom, high))


def _letterbox(image: Image, width: int, height: int) -> Image:
    scale = min(width / image.shape[1], height / image.shape[0])
    size = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
    if size != (image.shape[1], image.shape[0]):
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC)
    cell = np.full((height, width, 3), 238, dtype=np.uint8)
    left, top = (width - size[0]) // 2, (height - size[1]) // 2
    cell[top : top + size[1], left : left + size[0]] = image
    return cell
