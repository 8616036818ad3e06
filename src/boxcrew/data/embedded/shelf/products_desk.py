"""Drawings of computers and books."""

from __future__ import annotations

import numpy as np

from boxcrew.data.embedded.shelf.brush import INK, WHITE, Brush, Color, darker, lighter, luminance, mix
from boxcrew.data.embedded.shelf.design import Drawing, Traits, design, span
from boxcrew.data.embedded.shelf.geometry import Points, curve, ellipse, points, rect, rounded, symmetric


def _screen(brush: Brush, corners: Points) -> None:
    """Paint the content of a screen with these corners, clockwise from the top left."""

    def at(u: float, v: float) -> tuple[float, float]:
        top = corners[0] + (corners[1] - corners[0]) * u
        bottom = corners[3] + (corners[2] - corners[3]) * u
        x, y = top + (bottom - top) * v
        return float(x), float(y)

    def window(u0: float, v0: float, u1: float, v1: float) -> Points:
        return points(at(u0, v0), at(u1, v0), at(u1, v1), at(u0, v1))

    kind = brush.pick(3)
    back = brush.color((0.3, 0.8), (0.3, 0.9)) if kind else (30.0, 33.0, 44.0)
    brush.fill(back, corners)
    if kind == 0:
        inks = [brush.color((0.3, 0.7), (0.7, 1.0)) for _ in range(3)]
        for number, v in enumerate(np.linspace(0.14, 0.86, 6)):
            brush.line(inks[number % 3], 2.0, points(at(0.08, v), at(brush.between(0.3, 0.8), v)))
    elif kind == 1:
        hills = ((0, 1), (0, 0.7), (0.35, 0.35), (0.6, 0.75), (0.8, 0.5), (1, 0.8), (1, 1))
        brush.fill(lighter(back, 0.3), points(*(at(u, v) for u, v in hills)))
        brush.fill((250.0, 226.0, 150.0), ellipse(*at(0.75, 0.25), 4))
    else:
        brush.fill(WHITE, window(0.1, 0.14, 0.6, 0.8))
        brush.fill(brush.color(), window(0.1, 0.14, 0.6, 0.25))
        brush.fill(lighter(back, 0.4), window(0.66, 0.3, 0.92, 0.62))
        brush.fill(darker(back, 0.6), window(0, 0.92, 1, 1))


@design("stand", "flat", size=0.78, upright=True)
def _laptop(t: Traits) -> Drawing:
    """An open laptop: an upright lid and a keyboard that comes forward."""
    lean, deep, lid = span(t[0], 2, 6), span(t[1], 74, 82), span(t[2], 0, 6)
    left, right = (12 + lean, lid), (88 - lean, lid)
    screen = curve(left, left, right, right, (88, 56), (88, 56), (12, 56), (12, 56), rounds=1)
    front = [(100, deep), (100, deep + 3), (0, deep + 3), (0, deep)]
    base = curve((12, 55), (12, 55), (88, 55), (88, 55), *front, rounds=1)
    brush = yield screen, base
    metal = brush.gray(0.68, 0.9) if brush.chance(0.6) else brush.casing()
    brush.fill(INK if brush.chance(0.6) else darker(metal, 0.3), screen)
    _screen(brush, points((15 + lean, lid + 3), (85 - lean, lid + 3), (85, 51), (15, 51)))
    brush.fill(metal, base)
    keys, tall = darker(metal, 0.65), (deep - 58) * 0.55
    near, pad = 58 + tall, 58 + (deep - 58) * 0.66
    brush.fill(keys, points((15, 58), (85, 58), (90, near), (10, near)))
    if brush.fine:
        rows = (points((11, y), (89, y)) for y in (58 + tall * share for share in (0.25, 0.5, 0.75)))
        columns = (points((x, 58), (50 + (x - 50) * 1.12, near)) for x in range(22, 85, 8))
        brush.line(lighter(keys, 0.3), 0.7, *rows, *columns)
    brush.fill(darker(metal, 0.15), points((39, pad), (61, pad), (62, deep - 1), (38, deep - 1)))
    brush.line(darker(metal, 0.4), 1.6, points((0, deep + 2), (100, deep + 2)))


@design("stand", size=0.85, upright=True)
def _monitor(t: Traits) -> Drawing:
    """A screen on a foot."""
    low = span(t[0], 56, 64)
    neck = points((45, low - 2), (55, low - 2), (57, 80), (43, 80))
    foot = curve((26, 79), (74, 79), (78, 84), (78, 84), (22, 84), (22, 84), rounds=1)
    outline = (neck, foot, rounded(0, 0, 100, low, 2.5))
    brush = yield outline
    stand = brush.gray(0.55, 0.85) if brush.chance(0.5) else brush.gray(0.15, 0.3)
    bezel = INK if brush.chance(0.6) else brush.gray(0.75, 0.95)
    for color, shape in zip((darker(stand, 0.2), stand, bezel), outline, strict=True):
        brush.fill(color, shape)
    chin = 4 if t[1] < 0.6 else 10
    _screen(brush, rect(3, 3, 97, low - chin))
    if chin > 4:
        brush.fill(mix(bezel, WHITE if luminance(bezel) < 120 else INK, 0.5), ellipse(50, low - 5, 2.2))


@design("stand", size=0.85, upright=True)
def _desktop(t: Traits) -> Drawing:
    """A screen with its keyboard before it."""
    lifted = [shape * (0.84, 0.9) + (8, 0) for shape in _monitor.outline(t)]
    keyboard = curve((10, 80), (90, 80), (90, 80), (98, 94), (97, 96), (3, 96), (2, 94), (10, 80), rounds=1)
    brush = yield *lifted, keyboard
    low = span(t[0], 56, 64) * 0.9
    stand = brush.gray(0.6, 0.9)
    bezel = INK if brush.chance(0.5) else WHITE
    for color, shape in zip((darker(stand, 0.2), stand, bezel), lifted, strict=True):
        brush.fill(color, shape)
    _screen(brush, rect(11, 3, 89, low - 5))
    board = WHITE if brush.chance(0.6) else brush.gray(0.15, 0.3)
    brush.fill(board, keyboard)
    keys = darker(board, 0.35) if luminance(board) > 120 else lighter(board, 0.4)
    brush.line(keys, 1.6, *(points((9 - k * 1.5, 84 + k * 4), (91 + k * 1.5, 84 + k * 4)) for k in range(3)))


def _cover(brush: Brush) -> Color:
    return brush.color((0.35, 0.85), (0.35, 0.85)) if brush.chance(0.85) else brush.gray(0.3, 0.9)


@design("stand", size=0.65, upright=True)
def _book_row(t: Traits) -> Drawing:
    """Three to six books standing side by side, spines to the front."""
    count = 3 + int(t[0] * 3.99)
    widths = [9 + 7 * ((t[1] * 7.3 + k * 0.618) % 1.0) for k in range(count)]
    heights = [70 + 28 * ((t[2] * 5.7 + k * 0.414) % 1.0) for k in range(count)]
    edges = np.cumsum([0.0, *widths])
    books = [rect(edges[k], 100 - heights[k], edges[k + 1], 100) for k in range(count)]
    if t[3] > 0.5:
        end, wide = edges[-1], widths[-1]
        leaning = points((end - 6, 24), (end + 4, 22), (end + wide + 8, 99), (end + wide - 2, 100))
        books[-1] = leaning - (wide - 2, 0)
    brush = yield tuple(books)
    for book in books:
        cover = _cover(brush)
        brush.fill(cover, book)
        brush.line(darker(cover, 0.4), 1.0, np.concatenate([book, book[:1]]))
        across, down = book[1] - book[0], book[3] - book[0]
        gilt = lighter(cover, 0.65) if brush.chance(0.7) else (222.0, 190.0, 110.0)
        left = book[0] + across * 0.22 + down * brush.between(0.1, 0.3)
        right, tall = left + across * 0.56, down * brush.between(0.18, 0.35)
        brush.fill(gilt, np.stack([left, right, right + tall, left + tall]))
        for share in (0.05, 0.88, 0.93):
            brush.line(gilt, 1.4, np.stack([book[0] + down * share, book[1] + down * share]))


@design("stand", size=0.6, upright=True)
def _book_stack(t: Traits) -> Drawing:
    """Three to five books lying on each other."""
    books, bottom = [], 100.0
    for k in range(3 + int(t[0] * 2.99)):
        high = 11 + 6 * ((t[1] * 3.7 + k * 0.618) % 1.0)
        inset = 16 * ((t[2] * 4.3 + k * 0.414) % 1.0)
        slide = inset * ((t[3] * 3.1 + k * 0.732) % 1.0)
        books.append(rounded(slide, bottom - high, 100 - inset + slide, bottom, 2))
        bottom -= high
    brush = yield tuple(books)
    for book in books:
        (x0, y0), (x1, y1) = book.min(axis=0), book.max(axis=0)
        cover = _cover(brush)
        brush.fill(cover, book)
        if brush.chance(0.45):
            brush.fill((238.0, 228.0, 205.0), rect(x0 + 4, y0 + 2, x1 + 1, y1 - 2))
            brush.line((196.0, 184.0, 160.0), 0.7, *(points((x0 + 4, y), (x1, y)) for y in (y0 + 5, y1 - 5)))
        else:
            gilt = lighter(cover, 0.6)
            brush.fill(gilt, rect(x0 + 6, y0, x0 + 8, y1), rect(x1 - 9, y0, x1 - 7, y1))
            brush.fill(gilt, rect(x0 + 22, y0 + 4, x0 + 22 + brush.between(20, 40), y1 - 4))
        brush.line(darker(cover, 0.5), 1.2, points((x0, y1), (x1, y1)))


@design("flat", "stand", size=0.65)
def _open_book(t: Traits) -> Drawing:
    """A book lying open, its pages bent up from the fold."""
    rise, high = span(t[0], 4, 10), span(t[1], 54, 68)
    top = [(50, 8), (38, 8 - rise), (16, 8 - rise * 0.6), (1, 10), (1, 10)]
    bottom = [(1, high), (1, high), (20, high - 4), (42, high - 2), (50, high + 5)]
    binding = symmetric([*top, *bottom])
    brush = yield (binding,)
    brush.fill(_cover(brush), binding)
    page = (244.0, 238.0, 222.0)
    top = [(0, 9), (-13, 11 - rise), (-32, 11 - rise * 0.6), (-45, 13), (-45, 13)]
    bottom = [(-45, high - 4), (-45, high - 4), (-28, high - 7), (-8, high - 5), (0, high + 1)]
    sheet = curve(*top, *bottom)
    for side in (-1, 1):
        brush.fill(page, sheet * (side, 1) + (50, 0))
        ends = [brush.between(10, 16) if brush.chance(0.25) else 41 for _ in range(7)]
        rows = np.linspace(17, high - 13, 7)
        if brush.chance(0.3):
            brush.fill(brush.color(), rect(50 + side * 41, 14, 50 + side * 9, high * 0.5))
            rows = rows[4:]
        for y, end in zip(rows, ends, strict=False):
            brush.line((160.0, 154.0, 146.0), 1.4, points((50 + side * 7, y), (50 + side * end, y - 1)))
        fold = points((50, 9), (50 + side * 4, 10), (50 + side * 3, high - 2), (50, high))
        brush.fill(darker(page, 0.18), fold)


COMPUTER = (_laptop, _monitor, _desktop)


BOOKS = (_book_row, _book_stack, _open_book)
