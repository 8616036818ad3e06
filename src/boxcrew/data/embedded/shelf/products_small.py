"""Drawings of shoes, watches and phones."""

from __future__ import annotations

import math
from collections.abc import Callable

from boxcrew.data.embedded.shelf.brush import INK, WHITE, Brush, Color, darker, lighter, mix
from boxcrew.data.embedded.shelf.design import Drawing, Traits, design, span
from boxcrew.data.embedded.shelf.geometry import Outline, Points, curve, ellipse, points, rect, rounded, spoke

_STEEL: Color = (196.0, 200.0, 206.0)
_GOLD: Color = (214.0, 176.0, 92.0)
_PAIR = (12.0, -8.0)  # offset of the farther shoe of a pair; the two are one object
_Leathers = tuple[Color, Color, Color]


def _pair(*shapes: Points) -> Outline:
    return (*(shape + _PAIR for shape in shapes), *shapes)


def _paint_pair(brush: Brush, leathers: _Leathers, shoe: Callable[[Brush, _Leathers], None]) -> None:
    upper, sole, trim = leathers
    shoe(brush.moved(*_PAIR), (darker(upper, 0.25), darker(sole, 0.25), darker(trim, 0.25)))
    shoe(brush, leathers)


@design("stand", "flat", size=0.62, upright=True)
def _sneaker(t: Traits) -> Drawing:
    """A low or ankle-high trainer on a thick sole."""
    top = span(t[0], 8, 20)
    heel = [(4, 52), (4, 52), (3, 32), (6, top), (12, top - 3), (30, top), (36, top + 2)]
    upper = curve(*heel, (52, 25), (70, 31), (92, 36), (99, 46), (98, 52), (98, 52))
    base = rounded(1, 47, 101, span(t[1], 55, 60), 4)
    brush = yield _pair(upper, base)
    stripe_style = brush.pick(3)

    def shoe(brush: Brush, leathers: _Leathers) -> None:
        cloth, sole, trim = leathers
        brush.fill(cloth, upper)
        brush.fill(darker(cloth, 0.5), ellipse(20, top, 15, 3.5))
        brush.fill(trim, points((2, 30), (12, 32), (14, 52), (2, 52)))
        brush.fill(lighter(cloth, 0.35), curve((76, 54), (76, 40), (84, 33), (102, 36), (102, 54)))
        if stripe_style == 0:
            brush.fill(trim, *(points((x, 24), (x + 5, 25), (x - 1, 50), (x - 6, 50)) for x in (34, 43, 52)))
        elif stripe_style == 1:
            brush.fill(trim, points((16, 38), (34, 46), (64, 33), (36, 52), (24, 50)))
        laces = ((38, 17), (44, 20.5), (50, 24), (56, 26.5))
        brush.line(WHITE, 2.4, *(points((x, y), (x - 4, y + 9)) for x, y in laces))
        brush.fill(sole, base)
        brush.line(darker(sole, 0.25), 1.2, points((1, 52), (101, 52)))

    cloth = brush.fabric()
    sole = WHITE if brush.chance(0.6) else brush.fabric()
    _paint_pair(brush, (cloth, sole, brush.fabric() if brush.chance(0.7) else WHITE), shoe)


@design("stand", size=0.62, upright=True)
def _boot(t: Traits) -> Drawing:
    """A boot with a shaft to the calf."""
    shaft = span(t[0], 34, 44)
    back = [(6, 88), (4, 70), (6, 40), (4, 2), (4, 2), (shaft, 2), (shaft, 2), (shaft - 1, 40)]
    upper = curve(*back, (shaft + 4, 54), (72, 64), (86, 76), (86, 89), (86, 89), (6, 89), (6, 89))
    heel = points((4, 86), (88, 86), (88, 94), (36, 94), (34, 98), (4, 98))
    brush = yield _pair(upper, heel)
    laced = brush.chance(0.6)

    def shoe(brush: Brush, leathers: _Leathers) -> None:
        leather, sole, trim = leathers
        brush.fill(leather, upper)
        brush.fill(darker(leather, 0.3), rect(0, 0, shaft + 6, 9))
        brush.fill(lighter(leather, 0.14), curve((48, 86), (58, 64), (74, 66), (88, 78), (88, 88)))
        seam = points((shaft - 10, 8), (shaft - 9, 46), (shaft + 2, 62), (50, 86))
        brush.line(darker(leather, 0.4), 1.4, seam)
        if laced:
            brush.line(trim, 2.2, *(points((shaft - 9, y), (shaft, y + 3)) for y in (16, 25, 34, 43, 52)))
        else:
            brush.fill(darker(leather, 0.55), points((16, 8), (27, 8), (24, 36), (19, 36)))
        brush.fill(sole, heel)

    if brush.chance(0.6):
        tone = brush.between(0.6, 1.15)
        leather: Color = (150 * tone, 96 * tone, 56 * tone)
    else:
        leather = brush.color((0.2, 0.8), (0.25, 0.7))
    sole = INK if brush.chance(0.6) else (120.0, 84.0, 58.0)
    _paint_pair(brush, (leather, sole, lighter(leather, 0.6)), shoe)


@design("stand", "flat", size=0.55, upright=True)
def _heel(t: Traits) -> Drawing:
    """A court shoe on a high heel."""
    height = span(t[0], 8, 20)
    back = [(6, 62), (8, 62), (12, 34), (8, 24), (8, height), (10, height - 2)]
    front = [(22, 26), (40, 38), (62, 47), (74, 46), (92, 54), (98, 60), (96, 64), (70, 64)]
    body = curve(*back, *front, (44, 54), (22, 40), (17, 38), (11, 63))
    brush = yield _pair(body)
    bow = brush.chance(0.5)

    def shoe(brush: Brush, leathers: _Leathers) -> None:
        leather, sole, trim = leathers
        brush.fill(leather, body)
        brush.line(sole, 2.6, points((13, 38), (20, 40), (44, 55), (68, 64.5), (98, 64.5)))
        inside = curve((10, height), (24, 26), (44, 39), (70, 47), (40, 41), (14, 28))
        brush.fill(darker(leather, 0.5), inside)
        if bow:
            brush.fill(trim, points((66, 42), (74, 50), (66, 54)), points((82, 46), (74, 50), (81, 57)))

    leather = brush.color((0.5, 0.95), (0.35, 0.9)) if brush.chance(0.8) else INK
    sole = (170.0, 30.0, 40.0) if brush.chance(0.3) else darker(leather, 0.6)
    _paint_pair(brush, (leather, sole, lighter(leather, 0.4)), shoe)


def _strap(t: Traits) -> tuple[Points, Points]:
    wide, narrow = span(t[0], 13, 17), span(t[0], 9, 12)
    left, right = 50 - narrow, 50 + narrow
    end = [(left, 3), (left + 2, 0), (48 + narrow, 0), (right, 3)]
    top = curve((50 - wide, 36), *end, (50 + wide, 36), rounds=1)
    bottom = curve((50 - wide, 64), (left, 96), (46, 103), (54, 103), (right, 96), (50 + wide, 64), rounds=1)
    return top, bottom


def _paint_strap(brush: Brush, strap: Outline) -> None:
    if brush.chance(0.35):
        metal = _STEEL if brush.chance(0.7) else _GOLD
        brush.fill(metal, *strap)
        brush.line(darker(metal, 0.4), 1.3, *(points((30, y), (70, y)) for y in range(2, 104, 6)))
        brush.line(darker(metal, 0.3), 1.2, points((45, 0), (45, 104)), points((55, 0), (55, 104)))
        return
    leather = brush.color((0.4, 0.8), (0.25, 0.7)) if brush.chance(0.7) else brush.gray(0.12, 0.3)
    brush.fill(leather, *strap)
    for inner, outer in ((42, 39), (58, 61)):
        stitches = points((inner, 3), (outer, 36)), points((outer, 64), (inner, 96))
        brush.line(lighter(leather, 0.45), 1.0, *stitches)
    brush.fill(darker(leather, 0.6), *(ellipse(50, y, 1.5) for y in (80, 86, 92)))
    brush.fill(_STEEL, rect(38, 2, 62, 6))


@design("stand", "hang", "flat", size=0.5)
def _round_watch(t: Traits) -> Drawing:
    """A round case with a crown, on a strap laid straight."""
    strap, radius = _strap(t), span(t[1], 22, 26)
    crown, case = rounded(48 + radius, 47, 54 + radius, 53, 1.5), ellipse(50, 50, radius)
    brush = yield *strap, crown, case
    _paint_strap(brush, strap)
    metal = (_STEEL, _GOLD, INK)[brush.pick(3)]
    brush.fill(darker(metal, 0.15), crown)
    brush.fill(metal, case)
    brush.fill(darker(metal, 0.4), ellipse(50, 50, radius - 3))
    dark = brush.chance(0.45)
    dial = brush.color((0.3, 0.9), (0.15, 0.4)) if dark else brush.gray(0.85, 0.98)
    brush.fill(dial, ellipse(50, 50, radius - 4.5))
    ink = WHITE if dark else INK
    outer = radius - 6.5
    brush.line(ink, 1.6, *(spoke(math.pi / 6 * hour, outer - 3, outer) for hour in range(12)))
    if brush.chance(0.4):
        brush.fill(mix(dial, ink, 0.25), ellipse(43, 52, 3.5), ellipse(57, 52, 3.5))
    for long, width in ((12.5, 1.8), (8.5, 2.4)):
        brush.line(ink, width, spoke(brush.between(0, 6.3), 0, long))
    brush.fill((200.0, 60.0, 50.0), ellipse(50, 50, 1.6))


@design("stand", "hang", "flat", size=0.5)
def _smart_watch(t: Traits) -> Drawing:
    """A square case with a screen, on a broad strap laid straight."""
    strap, half = _strap(t), span(t[1], 19, 22)
    crown = rounded(48 + half, 42, 53 + half, 52, 1.5)
    case = rounded(50 - half, 48 - half * 1.15, 50 + half, 52 + half * 1.15, 8)
    brush = yield *strap, crown, case
    band_color = brush.color((0.3, 0.85), (0.4, 0.95)) if brush.chance(0.7) else brush.gray(0.15, 0.9)
    brush.fill(band_color, *strap)
    brush.fill(darker(band_color, 0.45), *(ellipse(50, y, 1.8) for y in (78, 84, 90, 96)))
    metal = INK if brush.chance(0.5) else _STEEL
    brush.fill(darker(metal, 0.2), crown)
    brush.fill(metal, case)
    black = (14.0, 15.0, 20.0)
    brush.fill(black, rounded(52.5 - half, 50.5 - half * 1.15, 47.5 + half, 49.5 + half * 1.15, 6))
    if brush.chance(0.5):
        for radius in (12.5, 9.0, 5.5):
            brush.fill(brush.color((0.7, 1.0), (0.8, 1.0)), ellipse(50, 50, radius))
            brush.fill(black, ellipse(50, 50, radius - 2.2))
    else:
        glow = brush.color((0.3, 0.8), (0.85, 1.0))
        brush.fill(glow, rect(38, 40, 48, 48), rect(52, 40, 62, 48))
        brush.line(lighter(glow), 2.2, points((38, 55), (62, 55)), points((38, 60), (54, 60)))


@design("stand", "flat", size=0.5)
def _phone_front(t: Traits) -> Drawing:
    """A smartphone: a slab with round corners."""
    half = span(t[0], 22, 26)
    slab = rounded(50 - half, 0, 50 + half, 100, span(t[1], 5, 9))
    brush = yield (slab,)
    left, right = 52.5 - half, 47.5 + half
    brush.fill(brush.casing(), slab)
    wallpaper = brush.color((0.35, 0.8), (0.35, 0.95))
    brush.fill(wallpaper, rounded(left, 3, right, 97, span(t[1], 3.5, 7)))
    second, middle = brush.color((0.3, 0.8), (0.5, 1.0)), brush.between(30, 70)
    hill = curve((left, 94), (left, middle), (50, middle + 14), (right, middle - 12), (right, 94))
    brush.fill(second, hill)
    brush.fill(INK, rounded(44, 4.5, 56, 8, 1.6))
    if brush.chance(0.65):
        for y in range(26, 26 + 13 * (brush.pick(3) + 2), 13):
            icon = brush.color((0.4, 0.9), (0.7, 1.0))
            brush.fill(icon, *(rect(x, y, x + 7, y + 7) for x in (34, 46.5, 59)))
        brush.fill(lighter(wallpaper, 0.5), rounded(left + 3, 84, right - 3, 94, 3))
    else:
        brush.line(WHITE, 3.0, points((40, 22), (60, 22)))
        brush.line(WHITE, 1.6, points((43, 29), (57, 29)))


@design("stand", "flat", size=0.5)
def _phone_back(t: Traits) -> Drawing:
    """A smartphone seen from behind."""
    half, (slab,) = span(t[0], 22, 26), _phone_front.outline(t)
    brush = yield (slab,)
    body = brush.casing()
    brush.fill(darker(body, 0.3), slab)
    brush.fill(body, rounded(51.5 - half, 1.5, 48.5 + half, 98.5, span(t[1], 4, 8)))
    shine = points((50 + half, 20), (50 + half, 50), (50 - half, 100), (50 - half, 76))
    brush.fill(lighter(body, 0.2), shine)
    brush.fill(darker(body, 0.25), rounded(54 - half, 4, 74 - half, 30, 5))
    lenses = ((60.0, 11.0), (60.0, 22.5), (68.5, 16.0))[: 2 + brush.pick(2)]
    brush.fill(INK, *(ellipse(x - half, y, 4.6) for x, y in lenses))
    brush.fill((90.0, 110.0, 160.0), *(ellipse(x - half, y, 1.8) for x, y in lenses))
    brush.fill(mix(body, WHITE if sum(body) < 330 else INK, 0.45), ellipse(50, 55, 4.5))


@design("stand", "flat", size=0.48)
def _keypad_phone(t: Traits) -> Drawing:
    """An older phone with keys and a stub of an aerial."""
    half = span(t[0], 20, 24)
    aerial = rounded(50 + half - 10, -10, 50 + half - 3, 12, 2.5)
    case = rounded(50 - half, 0, 50 + half, 100, span(t[1], 9, 14))
    brush = yield aerial, case
    body = brush.casing()
    brush.fill(darker(body, 0.4), aerial)
    brush.fill(body, case)
    brush.fill(INK, rounded(55 - half, 10, 45 + half, 46, 3))
    glow = (170.0, 205.0, 140.0) if brush.chance(0.5) else brush.color((0.3, 0.6), (0.7, 0.95))
    brush.fill(glow, rect(58 - half, 13, 42 + half, 43))
    brush.line(darker(glow, 0.6), 2.0, points((36, 22), (56, 22)), points((36, 30), (62, 30)))
    key = WHITE if sum(body) < 330 else darker(body, 0.5)
    keys = [(x, y) for y in (54, 64, 74, 84) for x in (51 - half * 0.62, 50, 49 + half * 0.62)]
    brush.fill(key, *(ellipse(x, y, 4.6, 3.2) for x, y in keys))


SHOES = (_sneaker, _boot, _heel)
WATCH = (_round_watch, _smart_watch)
PHONE = (_phone_front, _phone_back, _keypad_phone)
