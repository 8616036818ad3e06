"""Drawings of objects that belong to no class and have no label."""

from __future__ import annotations

import math

from boxcrew.data.embedded.shelf.brush import INK, WHITE, Brush, Colour, darker, lighter
from boxcrew.data.embedded.shelf.design import Design, Traits, span
from boxcrew.data.embedded.shelf.geometry import Outline, arc, band, curve, ellipse, points, rect, rounded


def _plant_outline(t: Traits) -> Outline:
    leaves = []
    for k in range(5):
        angle = math.radians(-150 + 30 * k + 14 * (t[k % 4] - 0.5))
        c, s, long, wide = math.cos(angle), math.sin(angle), span(t[(k + 1) % 4], 44, 58), span(t[0], 7, 11)
        tip, x, y = (50 + c * long, 62 + s * long), 50 + c * long * 0.5, 62 + s * long * 0.5
        leaves.append(curve((50, 64), (x - s * wide, y + c * wide), tip, tip, (x + s * wide, y - c * wide)))
    return (*leaves, points((30, 62), (70, 62), (64, 100), (36, 100)))


def _paint_plant(brush: Brush, outline: Outline, _: Traits) -> None:
    green = (brush.between(40, 110), brush.between(120, 170), brush.between(50, 90))
    for k, leaf in enumerate(outline[:-1]):
        brush.fill(darker(green, 0.07 * k), leaf)
        brush.line(lighter(green, 0.25), 1.0, points((50, 64), tuple(leaf[8])))
    pot = brush.colour((0.2, 0.6), (0.6, 0.95))
    brush.fill(pot, outline[-1])
    brush.fill(darker(pot, 0.2), rect(28, 62, 72, 70))


def _mug_outline(t: Traits) -> Outline:
    width = span(t[0], 54, 70)
    handle = band(arc(width, 50, (22, 24), (-95, 95)), 9)
    return (handle, rounded(4, 8, width, 98, span(t[1], 4, 14)))


def _paint_mug(brush: Brush, outline: Outline, t: Traits) -> None:
    glaze = brush.colour((0.2, 0.8), (0.6, 0.98))
    width = span(t[0], 54, 70)
    brush.fill(darker(glaze, 0.15), outline[0])
    brush.fill(glaze, outline[1])
    brush.fill(lighter(glaze, 0.3), rect(0, 8, width, 15))
    if brush.chance(0.5):
        brush.fill(lighter(glaze, 0.6), rect(0, 42, width, 62))


def _bottle_outline(t: Traits) -> Outline:
    wide, neck, shoulder = span(t[0], 15, 22), span(t[1], 5, 7), span(t[2], 30, 46)
    top, side = 50 - neck, 50 - wide
    half = [(top, 0), (top, 0), (top, shoulder - 12), (side, shoulder), (side, 99), (side, 100)]
    return (curve(*half, *((100 - x, y) for x, y in reversed(half))),)


def _paint_bottle(brush: Brush, outline: Outline, t: Traits) -> None:
    glass = brush.colour((0.3, 0.8), (0.3, 0.8))
    brush.fill(glass, outline[0])
    brush.fill(darker(glass, 0.45), rect(40, 0, 60, 9))
    brush.fill(WHITE if brush.chance(0.6) else brush.colour(), rect(20, 56, 80, 84))
    brush.line(darker(glass, 0.2), 1.6, points((38, 66), (62, 66)), points((42, 73), (58, 73)))
    wide = span(t[0], 15, 22)
    brush.line(lighter(glass, 0.5), 2.0, points((54 - wide, 40), (54 - wide, 96)))


def _carton_outline(t: Traits) -> Outline:
    side, top = span(t[0], 66, 78), span(t[1], 18, 28)
    edge = points((side - 1, top), (100, top - 12), (100, 84), (side - 1, 100))
    lid = points((0, top), (100 - side, top - 12), (100, top - 12), (side, top))
    return (rect(0, top, side, 100), edge, lid)


def _paint_carton(brush: Brush, outline: Outline, t: Traits) -> None:
    tone = brush.between(0.85, 1.15)
    card: Colour = (196 * tone, 156 * tone, 108 * tone)
    if brush.chance(0.35):
        card = brush.colour((0.3, 0.7), (0.6, 0.9))
    side, top = span(t[0], 66, 78), span(t[1], 18, 28)
    for colour, shape in zip((card, darker(card, 0.3), lighter(card, 0.25)), outline, strict=True):
        brush.fill(colour, shape)
    brush.fill(lighter(card, 0.4), rect(side * 0.42, top, side * 0.58, top + 26))


def _disc_outline(_: Traits) -> Outline:
    return (ellipse(50, 50, 50),)


def _paint_ball(brush: Brush, outline: Outline, _: Traits) -> None:
    rubber = brush.colour((0.4, 0.9), (0.6, 0.98))
    brush.fill(rubber, outline[0])
    colour = WHITE if brush.chance(0.5) else brush.colour()
    lean = brush.between(-14, 14)
    stripe = [(0, 44 + lean), (50, 36), (100, 44 - lean), (100, 62 - lean), (50, 58), (0, 62 + lean)]
    brush.fill(colour, curve(*stripe))
    brush.fill(lighter(rubber, 0.6), ellipse(34, 24, 8, 6))


def _lamp_outline(t: Traits) -> Outline:
    top, wide = span(t[0], 14, 22), span(t[1], 32, 40)
    shade = points((50 - top, 0), (50 + top, 0), (50 + wide, 46), (50 - wide, 46))
    return (shade, rect(47, 44, 53, 94), curve((30, 92), (70, 92), (74, 100), (26, 100), rounds=1))


def _paint_lamp(brush: Brush, outline: Outline, _: Traits) -> None:
    shade = brush.colour((0.1, 0.5), (0.8, 1.0))
    metal = brush.grey(0.2, 0.7) if brush.chance(0.5) else (190.0, 150.0, 80.0)
    brush.fill(shade, outline[0])
    brush.fill(lighter(shade, 0.5), points((44, 0), (56, 0), (60, 46), (40, 46)))
    brush.fill(darker(shade, 0.25), rect(0, 42, 100, 46))
    brush.fill(metal, *outline[1:])


def _frame_outline(t: Traits) -> Outline:
    return (rect(0, 0, span(t[0], 74, 118), 92),)


def _paint_frame(brush: Brush, outline: Outline, t: Traits) -> None:
    wide = span(t[0], 74, 118)
    right = wide - 16
    brush.fill(brush.colour((0.2, 0.6), (0.3, 0.8)), outline[0])
    brush.fill(WHITE, rect(7, 7, wide - 7, 85))
    brush.fill(brush.colour((0.15, 0.4), (0.85, 1.0)), rect(16, 16, right, 76))
    hill = points((16, 76), (16, 60), (wide * 0.4, 40), (wide * 0.62, 58), (right, 46), (right, 76))
    brush.fill(brush.colour((0.3, 0.6), (0.4, 0.75)), hill)
    brush.fill((246.0, 200.0, 120.0), ellipse(wide * 0.68, 30, 6))


def _paint_clock(brush: Brush, outline: Outline, _: Traits) -> None:
    brush.fill(brush.colour((0.2, 0.8), (0.3, 0.8)), outline[0])
    brush.fill(WHITE, ellipse(50, 50, 41))
    for hour in range(4):
        c, s = math.cos(math.pi / 2 * hour), math.sin(math.pi / 2 * hour)
        brush.line(INK, 3.0, points((50 + 31 * c, 50 + 31 * s), (50 + 37 * c, 50 + 37 * s)))
    for long, width in ((20, 4.0), (29, 2.6)):
        angle = brush.between(0, 6.3)
        brush.line(INK, width, points((50, 50), (50 + long * math.cos(angle), 50 + long * math.sin(angle))))


def _candle_outline(t: Traits) -> Outline:
    high = span(t[0], 18, 50)
    flame = curve((50, high - 22), (55, high - 10), (50, high - 4), (45, high - 10))
    return (flame, rect(49, high - 8, 51, high + 4), rounded(26, high, 74, 100, 4))


def _paint_candle(brush: Brush, outline: Outline, t: Traits) -> None:
    wax = brush.colour((0.1, 0.6), (0.8, 1.0))
    for colour, shape in zip(((252.0, 206.0, 96.0), INK, wax), outline, strict=True):
        brush.fill(colour, shape)
    brush.fill(lighter(wax, 0.4), ellipse(50, span(t[0], 18, 50) + 3, 22, 4))


def _cushion_outline(t: Traits) -> Outline:
    low = span(t[0], 66, 96)
    top = [(0, 2), (2, 0), (50, 6), (98, 0), (100, 2), (94, low / 2)]
    bottom = [(100, low - 2), (98, low), (50, low - 6), (2, low), (0, low - 2), (6, low / 2)]
    return (curve(*top, *bottom),)


def _paint_cushion(brush: Brush, outline: Outline, t: Traits) -> None:
    cloth = brush.fabric()
    brush.fill(cloth, outline[0])
    low = span(t[0], 66, 96)
    if brush.chance(0.6):
        stripes = (points((x, 0), (x + 9, 0), (x - 11, low), (x - 20, low)) for x in range(8, 130, 24))
        brush.fill(brush.fabric(), *stripes)
    brush.fill(darker(cloth, 0.3), ellipse(50, low / 2, 3))


DISTRACTORS = (
    Design(_plant_outline, _paint_plant, ("stand",), 0.6, upright=True),
    Design(_mug_outline, _paint_mug, ("stand", "flat"), 0.35, upright=True),
    Design(_bottle_outline, _paint_bottle, ("stand", "flat"), 0.5, upright=True),
    Design(_carton_outline, _paint_carton, ("stand", "flat"), 0.5, upright=True),
    Design(_disc_outline, _paint_ball, ("stand", "flat"), 0.38),
    Design(_lamp_outline, _paint_lamp, ("stand",), 0.65, upright=True),
    Design(_frame_outline, _paint_frame, ("stand", "hang"), 0.5, upright=True),
    Design(_disc_outline, _paint_clock, ("hang", "flat"), 0.4),
    Design(_candle_outline, _paint_candle, ("stand",), 0.3, upright=True),
    Design(_cushion_outline, _paint_cushion, ("flat", "stand"), 0.5),
)
