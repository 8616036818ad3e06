"""Drawings of objects that belong to no class and have no label."""

from __future__ import annotations

import math

from boxcrew.data.embedded.shelf.brush import INK, WHITE, Color, darker, lighter
from boxcrew.data.embedded.shelf.design import Drawing, Traits, design, span
from boxcrew.data.embedded.shelf.geometry import arc, band, curve, ellipse, points, rect, rounded, spoke

_DISC = ellipse(50, 50, 50)


@design("stand", size=0.6, upright=True)
def _plant(t: Traits) -> Drawing:
    leaves = []
    for k in range(5):
        angle = math.radians(-150 + 30 * k + 14 * (t[k % 4] - 0.5))
        c, s, long, wide = math.cos(angle), math.sin(angle), span(t[(k + 1) % 4], 44, 58), span(t[0], 7, 11)
        tip, x, y = (50 + c * long, 62 + s * long), 50 + c * long * 0.5, 62 + s * long * 0.5
        leaves.append(curve((50, 64), (x - s * wide, y + c * wide), tip, tip, (x + s * wide, y - c * wide)))
    pot = points((30, 62), (70, 62), (64, 100), (36, 100))
    brush = yield *leaves, pot
    green = (brush.between(40, 110), brush.between(120, 170), brush.between(50, 90))
    for k, leaf in enumerate(leaves):
        brush.fill(darker(green, 0.07 * k), leaf)
        brush.line(lighter(green, 0.25), 1.0, points((50, 64), tuple(leaf[8])))
    clay = brush.color((0.2, 0.6), (0.6, 0.95))
    brush.fill(clay, pot)
    brush.fill(darker(clay, 0.2), rect(28, 62, 72, 70))


@design("stand", "flat", size=0.35, upright=True)
def _mug(t: Traits) -> Drawing:
    width = span(t[0], 54, 70)
    handle = band(arc(width, 50, (22, 24), (-95, 95)), 9)
    body = rounded(4, 8, width, 98, span(t[1], 4, 14))
    brush = yield handle, body
    glaze = brush.color((0.2, 0.8), (0.6, 0.98))
    brush.fill(darker(glaze, 0.15), handle)
    brush.fill(glaze, body)
    brush.fill(lighter(glaze, 0.3), rect(0, 8, width, 15))
    if brush.chance(0.5):
        brush.fill(lighter(glaze, 0.6), rect(0, 42, width, 62))


@design("stand", "flat", size=0.5, upright=True)
def _bottle(t: Traits) -> Drawing:
    wide, neck, shoulder = span(t[0], 15, 22), span(t[1], 5, 7), span(t[2], 30, 46)
    top, side = 50 - neck, 50 - wide
    half = [(top, 0), (top, 0), (top, shoulder - 12), (side, shoulder), (side, 99), (side, 100)]
    body = curve(*half, *((100 - x, y) for x, y in reversed(half)))
    brush = yield (body,)
    glass = brush.color((0.3, 0.8), (0.3, 0.8))
    brush.fill(glass, body)
    brush.fill(darker(glass, 0.45), rect(40, 0, 60, 9))
    brush.fill(WHITE if brush.chance(0.6) else brush.color(), rect(20, 56, 80, 84))
    brush.line(darker(glass, 0.2), 1.6, points((38, 66), (62, 66)), points((42, 73), (58, 73)))
    brush.line(lighter(glass, 0.5), 2.0, points((54 - wide, 40), (54 - wide, 96)))


@design("stand", "flat", size=0.5, upright=True)
def _carton(t: Traits) -> Drawing:
    side, top = span(t[0], 66, 78), span(t[1], 18, 28)
    edge = points((side - 1, top), (100, top - 12), (100, 84), (side - 1, 100))
    lid = points((0, top), (100 - side, top - 12), (100, top - 12), (side, top))
    outline = (rect(0, top, side, 100), edge, lid)
    brush = yield outline
    tone = brush.between(0.85, 1.15)
    card: Color = (196 * tone, 156 * tone, 108 * tone)
    if brush.chance(0.35):
        card = brush.color((0.3, 0.7), (0.6, 0.9))
    for color, shape in zip((card, darker(card, 0.3), lighter(card, 0.25)), outline, strict=True):
        brush.fill(color, shape)
    brush.fill(lighter(card, 0.4), rect(side * 0.42, top, side * 0.58, top + 26))


@design("stand", "flat", size=0.38)
def _ball(_: Traits) -> Drawing:
    brush = yield (_DISC,)
    rubber = brush.color((0.4, 0.9), (0.6, 0.98))
    brush.fill(rubber, _DISC)
    color = WHITE if brush.chance(0.5) else brush.color()
    lean = brush.between(-14, 14)
    stripe = [(0, 44 + lean), (50, 36), (100, 44 - lean), (100, 62 - lean), (50, 58), (0, 62 + lean)]
    brush.fill(color, curve(*stripe))
    brush.fill(lighter(rubber, 0.6), ellipse(34, 24, 8, 6))


@design("stand", size=0.65, upright=True)
def _lamp(t: Traits) -> Drawing:
    top, wide = span(t[0], 14, 22), span(t[1], 32, 40)
    shade = points((50 - top, 0), (50 + top, 0), (50 + wide, 46), (50 - wide, 46))
    pole, foot = rect(47, 44, 53, 94), curve((30, 92), (70, 92), (74, 100), (26, 100), rounds=1)
    brush = yield shade, pole, foot
    cloth = brush.color((0.1, 0.5), (0.8, 1.0))
    metal = brush.gray(0.2, 0.7) if brush.chance(0.5) else (190.0, 150.0, 80.0)
    brush.fill(cloth, shade)
    brush.fill(lighter(cloth, 0.5), points((44, 0), (56, 0), (60, 46), (40, 46)))
    brush.fill(darker(cloth, 0.25), rect(0, 42, 100, 46))
    brush.fill(metal, pole, foot)


@design("stand", "hang", size=0.5, upright=True)
def _frame(t: Traits) -> Drawing:
    wide = span(t[0], 74, 118)
    frame, right = rect(0, 0, wide, 92), wide - 16
    brush = yield (frame,)
    brush.fill(brush.color((0.2, 0.6), (0.3, 0.8)), frame)
    brush.fill(WHITE, rect(7, 7, wide - 7, 85))
    brush.fill(brush.color((0.15, 0.4), (0.85, 1.0)), rect(16, 16, right, 76))
    hill = points((16, 76), (16, 60), (wide * 0.4, 40), (wide * 0.62, 58), (right, 46), (right, 76))
    brush.fill(brush.color((0.3, 0.6), (0.4, 0.75)), hill)
    brush.fill((246.0, 200.0, 120.0), ellipse(wide * 0.68, 30, 6))


@design("hang", "flat", size=0.4)
def _clock(_: Traits) -> Drawing:
    brush = yield (_DISC,)
    brush.fill(brush.color((0.2, 0.8), (0.3, 0.8)), _DISC)
    brush.fill(WHITE, ellipse(50, 50, 41))
    brush.line(INK, 3.0, *(spoke(math.pi / 2 * hour, 31, 37) for hour in range(4)))
    for long, width in ((20, 4.0), (29, 2.6)):
        brush.line(INK, width, spoke(brush.between(0, 6.3), 0, long))


@design("stand", size=0.3, upright=True)
def _candle(t: Traits) -> Drawing:
    high = span(t[0], 18, 50)
    flame = curve((50, high - 22), (55, high - 10), (50, high - 4), (45, high - 10))
    outline = (flame, rect(49, high - 8, 51, high + 4), rounded(26, high, 74, 100, 4))
    brush = yield outline
    wax = brush.color((0.1, 0.6), (0.8, 1.0))
    for color, shape in zip(((252.0, 206.0, 96.0), INK, wax), outline, strict=True):
        brush.fill(color, shape)
    brush.fill(lighter(wax, 0.4), ellipse(50, high + 3, 22, 4))


@design("flat", "stand", size=0.5)
def _cushion(t: Traits) -> Drawing:
    low = span(t[0], 66, 96)
    top = [(0, 2), (2, 0), (50, 6), (98, 0), (100, 2), (94, low / 2)]
    bottom = [(100, low - 2), (98, low), (50, low - 6), (2, low), (0, low - 2), (6, low / 2)]
    body = curve(*top, *bottom)
    brush = yield (body,)
    cloth = brush.fabric()
    brush.fill(cloth, body)
    if brush.chance(0.6):
        stripes = (points((x, 0), (x + 9, 0), (x - 11, low), (x - 20, low)) for x in range(8, 130, 24))
        brush.fill(brush.fabric(), *stripes)
    brush.fill(darker(cloth, 0.3), ellipse(50, low / 2, 3))


DISTRACTORS = (_plant, _mug, _bottle, _carton, _ball, _lamp, _frame, _clock, _candle, _cushion)
