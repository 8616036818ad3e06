"""The backdrop of a scene: its furniture as numbers, and furniture and walls painted with a few textures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import cv2
import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Image
from boxcrew.data.embedded.shelf.brush import Color, darker, hsv
from boxcrew.data.embedded.shelf.design import Stance


@dataclass(frozen=True, kw_only=True)
class GoodsRow:
    """A row of items. Numbers are fractions of the image's side."""

    stance: Stance
    near: float  # y of the feet (stand), the hook (hang) or the middle (flat) of the nearest item
    far: float  # the same of the farthest item
    room: float  # maximum height of an item
    depth: float = 1.0  # size of a far item relative to a near one


@dataclass(frozen=True, kw_only=True)
class Backdrop:
    kind: Literal["shelf", "table", "rail", "flat"]
    lines: tuple[float, ...]  # y of the boards' tops, the table's back edge, or the floor and the rail
    rows: tuple[GoodsRow, ...]


def _shelf(rng: np.random.Generator) -> Backdrop:
    num_boards = 2 + int(rng.random() < 0.5)
    lowest = 0.9 + 0.07 * rng.random()
    gap = (lowest - 0.02) / num_boards * (0.92 + 0.08 * rng.random())
    boards = tuple(lowest - gap * k for k in range(num_boards))
    stand = [GoodsRow(stance="stand", near=y + 0.012, far=y, room=gap * 0.86) for y in boards]
    hang = [
        GoodsRow(stance="hang", near=y - gap + 0.06, far=y - gap + 0.045, room=gap * 0.84) for y in boards
    ]
    return Backdrop(kind="shelf", lines=boards, rows=(*stand, *hang))


def _table(rng: np.random.Generator) -> Backdrop:
    edge = 0.4 + 0.22 * rng.random()
    stand = GoodsRow(stance="stand", near=0.97, far=edge + 0.03, room=0.5, depth=0.6)
    hang = GoodsRow(stance="hang", near=0.1, far=0.02, room=0.5)
    return Backdrop(kind="table", lines=(edge,), rows=(stand, hang))


def _rail(rng: np.random.Generator) -> Backdrop:
    floor, rail = 0.66 + 0.12 * rng.random(), 0.04 + 0.06 * rng.random()
    stand = GoodsRow(stance="stand", near=0.97, far=floor + 0.02, room=0.5, depth=0.75)
    hang = GoodsRow(stance="hang", near=rail, far=rail, room=0.5)
    return Backdrop(kind="rail", lines=(floor, rail), rows=(stand, hang))


def choose_backdrop(rng: np.random.Generator) -> Backdrop:
    drawn = rng.random()
    for limit, maker in ((0.35, _shelf), (0.65, _table), (0.8, _rail)):
        if drawn < limit:
            return maker(rng)
    return Backdrop(kind="flat", lines=(), rows=(GoodsRow(stance="flat", near=0.92, far=0.08, room=0.5),))


Texture = npt.NDArray[np.uint8]
"""(512, 512) gray levels with a mean near 128."""
Material = Literal["wood", "plaster", "cloth", "marble"]

_SIDE = 512


@lru_cache(maxsize=4)
def _texture(kind: Material) -> Texture:
    """Return a texture; wood has its grain along x."""
    rng = np.random.default_rng({"wood": 11, "plaster": 12, "cloth": 13, "marble": 14}[kind])
    rows = np.arange(_SIDE, dtype=np.float32)

    def clouds(width: int, height: int) -> npt.NDArray[np.float32]:
        coarse = rng.standard_normal((height, width)).astype(np.float32)
        return np.asarray(cv2.resize(coarse, (_SIDE, _SIDE), interpolation=cv2.INTER_CUBIC))

    if kind == "wood":
        streaks = clouds(4, 160) + 0.7 * clouds(9, 420) + 0.8 * clouds(3, 40)
        x, y = np.meshgrid(rows, rows)
        bent = (y + 9 * np.sin(x / 90) + 6 * clouds(3, 4)).astype(np.float32)
        grain = cv2.remap(streaks, x, bent, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
    elif kind == "plaster":
        grain = clouds(6, 6) + 0.5 * clouds(40, 40) + 0.5 * clouds(250, 250)
    elif kind == "cloth":
        waves = np.sin(rows * 1.9)
        grain = waves[:, None] + waves[None, :] + 0.8 * clouds(300, 300) + 0.6 * clouds(12, 12)
    else:
        x, y = np.meshgrid(rows / 60, rows / 60)
        veins = np.abs(np.sin(0.7 * x + 0.5 * y + 1.6 * clouds(6, 6) + 0.3 * clouds(30, 30)))
        grain = 0.35 * clouds(8, 8) - np.exp(-9 * veins)
    normalized = (grain - grain.mean()) / (grain.std() + 1e-6)
    return np.asarray((128 + 42 * normalized).clip(0, 255), dtype=np.uint8)


def _tint(kind: Material, area: Image, rng: np.random.Generator, color: Color, contrast: float) -> None:
    """Cover `area` with a random piece of the texture in shades of the color."""
    height, width = area.shape[:2]
    x, y = (rng.random(2) * (_SIDE - width, _SIDE - height)).astype(int).tolist()
    steps = 1 + contrast * (np.arange(256) - 128) / 128
    shades = (steps[None, :, None] * color).clip(0, 255).astype(np.uint8)
    piece = _texture(kind)[y : y + height, x : x + width]
    area[...] = cv2.LUT(cv2.merge([piece, piece, piece]), shades)


def shade_rows(area: Image, first: float, last: float) -> None:
    """Multiply the brightness by a factor from `first` at the top to `last` at the bottom."""
    factors = np.linspace(first, last, len(area), dtype=np.float32)[:, None, None]
    np.clip(area * factors, 0, 255, out=area, casting="unsafe")


def _wood_color(rng: np.random.Generator) -> Color:
    hue, strong, bright = rng.random(3).tolist()
    return hsv(0.05 + 0.05 * hue, 0.25 + 0.35 * strong, 0.42 + 0.48 * bright)


def _wall_color(rng: np.random.Generator) -> Color:
    hue, strong, bright = rng.random(3).tolist()
    return hsv(hue, 0.05 + 0.3 * strong, 0.5 + 0.45 * bright)


def _paint_wall(area: Image, rng: np.random.Generator) -> None:
    """Paint a plaster wall, sometimes papered, paneled or tiled."""
    color = _wall_color(rng)
    _tint("plaster", area, rng, color, 0.05)
    height, width = area.shape[:2]
    kind, step = int(rng.random() * 6), 14 + int(26 * rng.random())
    if kind == 0:
        for x in range(0, width, 2 * step):
            area[:, x : x + step] = cv2.convertScaleAbs(area[:, x : x + step], alpha=0.93)
    elif kind == 1:
        dark = tuple(0.82 * channel for channel in color)
        for y in range(step // 2, height, step):
            cv2.line(area, (0, y), (width, y), dark, 1)
        for x in range(step // 2, width, 2 * step):
            cv2.line(area, (x, 0), (x, height), dark, 1)
    elif kind == 2:
        dark = tuple(0.8 * channel for channel in color)
        light = tuple(min(255.0, 1.08 * channel) for channel in color)
        for x in range(step // 2, width, 2 * step):
            cv2.line(area, (x, 0), (x, height), dark, 2)
            cv2.line(area, (x + 2, 0), (x + 2, height), light, 1)


def _paint_top(area: Image, rng: np.random.Generator) -> None:
    """Paint a table top: boards, cloth, marble, or paint."""
    kind = int(rng.random() * 5)
    if kind <= 1:
        color = _wood_color(rng)
        _tint("wood", area, rng, color, 0.2)
        step = 34 + int(40 * rng.random())
        for y in range(step // 2, len(area), step) if kind else ():
            cv2.line(area, (0, y), (area.shape[1], y), tuple(0.6 * channel for channel in color), 1)
    elif kind == 2:
        color = _wall_color(rng)
        _tint("cloth", area, rng, color, 0.09)
        step = 12 + int(18 * rng.random())
        for lines in (area, area.transpose(1, 0, 2)) if rng.random() < 0.5 else ():
            for start in range(0, len(lines), 2 * step):
                stripe = np.ascontiguousarray(lines[start : start + step])
                lines[start : start + step] = cv2.convertScaleAbs(stripe, alpha=0.88)
    elif kind == 3:
        _tint("marble", area, rng, hsv(rng.random(), 0.06, 0.92 - 0.35 * rng.random()), 0.11)
    else:
        _tint("plaster", area, rng, _wall_color(rng), 0.07)


def _paint_shelf(image: Image, backdrop: Backdrop, rng: np.random.Generator) -> None:
    size = len(image)
    _paint_wall(image, rng)
    color = _wood_color(rng) if rng.random() < 0.7 else _wall_color(rng)
    thick = round(size * (0.022 + 0.014 * rng.random()))
    for line in backdrop.lines:
        y = round(line * size)
        bottom = y + thick + 4
        _tint("wood", image[y:bottom], rng, color, 0.16)
        shade_rows(image[y : y + 4], 1.12, 1.05)
        shade_rows(image[y + 4 : bottom], 0.9, 0.72)
        shade_rows(image[bottom : bottom + size // 11], 0.6, 1.0)
        shade_rows(image[y - size // 20 : y], 1.0, 0.86)
    if rng.random() < 0.5:
        side = round(size * (0.015 + 0.02 * rng.random()))
        for post in (image[:, :side], image[:, size - side :]):
            _tint("wood", post, rng, darker(color, 0.12), 0.12)


def _paint_table(image: Image, backdrop: Backdrop, rng: np.random.Generator) -> None:
    size = len(image)
    edge = round(backdrop.lines[0] * size)
    _paint_wall(image[:edge], rng)
    _paint_top(image[edge:], rng)
    shade_rows(image[edge - size // 14 : edge], 1.0, 0.8)
    shade_rows(image[edge:], 0.86, 1.06)
    image[edge : edge + 2] = cv2.convertScaleAbs(image[edge : edge + 2], alpha=1.15)


def _paint_rail(image: Image, backdrop: Backdrop, rng: np.random.Generator) -> None:
    _paint_table(image, backdrop, rng)
    y, size = round(backdrop.lines[1] * len(image)), len(image)
    metal = (70.0, 70.0, 76.0) if rng.random() < 0.5 else (196.0, 190.0, 182.0)
    for x in (round(0.03 * size), round(0.97 * size)):
        cv2.line(image, (x, y), (x, round((backdrop.lines[0] + 0.04) * size)), metal, 4, cv2.LINE_AA)
    cv2.line(image, (0, y), (size, y), metal, 5, cv2.LINE_AA)
    cv2.line(image, (0, y - 1), (size, y - 1), tuple(min(255.0, channel + 50) for channel in metal), 1)


def paint_surfaces(backdrop: Backdrop, size: int, rng: np.random.Generator) -> Image:
    """Paint the backdrop without items."""
    image = np.zeros((size, size, 3), dtype=np.uint8)
    if backdrop.kind == "flat":
        _paint_top(image, rng)
    else:
        {"shelf": _paint_shelf, "table": _paint_table, "rail": _paint_rail}[backdrop.kind](
            image, backdrop, rng
        )
    return image
