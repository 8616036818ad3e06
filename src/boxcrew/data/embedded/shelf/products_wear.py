"""Drawings of clothes and pants."""

from __future__ import annotations

import numpy as np

from boxcrew.data.embedded.shelf.brush import INK, WHITE, Brush, Color, darker, lighter, luminance
from boxcrew.data.embedded.shelf.design import Drawing, Traits, design, span
from boxcrew.data.embedded.shelf.geometry import band, curve, ellipse, points, rect, symmetric


def _contrast(color: Color) -> Color:
    return darker(color, 0.55) if luminance(color) > 130 else lighter(color, 0.65)


def _print_fabric(brush: Brush, base: Color) -> None:
    """Paint a pattern over the fabric, or none."""
    kind = brush.pick(7)
    second = brush.fabric() if brush.chance(0.6) else _contrast(base)
    step = brush.between(9, 17)
    if kind == 0:
        brush.fill(second, *(rect(0, y, 100, y + step * 0.45) for y in np.arange(18, 100, step)))
    elif kind == 1:
        brush.fill(second, *(rect(x, 0, x + step * 0.3, 110) for x in np.arange(4, 98, step)))
    elif kind == 2:
        spots = [(x, y) for x in np.arange(6, 98, step * 1.3) for y in np.arange(8, 104, step * 1.3)]
        brush.fill(second, *(ellipse(x, y, step * 0.22) for x, y in spots))
    elif kind == 3:
        brush.fill(darker(base, 0.22), *(rect(0, y, 100, y + step * 0.4) for y in np.arange(4, 106, step)))
        brush.line(lighter(base, 0.45), 1.2, *(points((x, 0), (x, 110)) for x in np.arange(6, 98, step)))


def _folds(brush: Brush, base: Color) -> None:
    if not brush.fine:
        return
    soft = darker(base, 0.16)
    for _ in range(3):
        x, y = brush.between(28, 72), brush.between(50, 80)
        brush.line(soft, 1.4, points((x, y), (x + brush.between(-5, 5), y + brush.between(10, 20))))


@design("hang", "flat", size=0.75)
def _tshirt(t: Traits) -> Drawing:
    """A body with sleeves from short to long."""
    long = t[0] > 0.6
    wrist, drop = (span(t[1], 3, 7), span(t[1], 80, 70)) if long else (span(t[1], 1, 6), span(t[0], 36, 46))
    waist, hem, cuff = span(t[2], 25, 30), span(t[3], 88, 100), wrist + (12 if long else 14)
    neck = [(46, 12), (41, 7), (37, 4), (33, 6), (19, 13), (15, 17)]
    sleeve = [(wrist, drop), (wrist, drop), (cuff, drop + 5), (cuff, drop + 5)]
    side = [(waist, 36), (waist, 36), (waist, 60), (waist - 1, hem), (waist, hem + 1)]
    shirt = symmetric([*neck, *sleeve, *side])
    brush = yield (shirt,)
    base = brush.fabric()
    brush.fill(base, shirt)
    _print_fabric(brush, base)
    _folds(brush, base)
    trim = darker(base, 0.35)
    brush.line(trim, 2.6, points((33, 5), (40, 13), (50, 16), (60, 13), (67, 5)))
    brush.line(trim, 1.2, points((23, 14), (waist, 36)), points((77, 14), (100 - waist, 36)))
    style = brush.pick(4)
    if style == 0:
        brush.fill(_contrast(base), points((50, 16), (37, 4), (33, 16)), points((50, 16), (63, 4), (67, 16)))
        brush.line(trim, 1.2, points((50, 15), (50, 101)))
        brush.fill(WHITE, *(ellipse(50, y, 1.6) for y in (26, 40, 54, 68, 82)))
    elif style == 1:
        brush.fill(brush.color(), ellipse(50, 44, brush.between(9, 14)))
        brush.fill(WHITE, ellipse(50, 44, 5))
    elif style == 2:
        brush.fill(darker(base, 0.18), rect(57, 32, 70, 46))


@design("hang", "flat", size=0.8)
def _hoodie(t: Traits) -> Drawing:
    """Long sleeves, a hood, a broad band at the hem."""
    wrist, drop, waist, hem = span(t[0], 2, 8), span(t[1], 76, 86), span(t[2], 23, 27), span(t[3], 92, 100)
    hood = [(44, 1), (36, 4), (31, 12), (19, 18), (14, 24)]
    sleeve = [(wrist, drop), (wrist, drop), (wrist + 11, drop + 4), (wrist + 11, drop + 4)]
    side = [(waist, 42), (waist, 44), (waist - 1, hem - 8), (waist + 1, hem), (waist + 2, hem)]
    hoodie = symmetric([*hood, *sleeve, *side])
    brush = yield (hoodie,)
    base = brush.fabric()
    trim = darker(base, 0.3)
    brush.fill(base, hoodie)
    if brush.chance(0.35):
        brush.fill(brush.fabric(), rect(0, 48, 100, 62))
    _folds(brush, base)
    brush.fill(trim, rect(waist, hem - 7, 100 - waist, hem + 2))
    brush.line(trim, 1.4, points((24, 18), (waist, 42)), points((76, 18), (100 - waist, 42)))
    brush.fill(darker(base, 0.6), curve((50, 22), (37, 15), (40, 5), (50, 4), (60, 5), (63, 15)))
    pocket = curve((34, 66), (66, 66), (66, 66), (72, 86), (28, 86), (34, 66), rounds=1)
    brush.fill(darker(base, 0.15), pocket)
    if brush.chance(0.5):
        brush.line(lighter(base, 0.6), 1.8, points((50, 22), (50, hem)))
    brush.line(lighter(base, 0.7), 1.2, points((45, 21), (44, 36)), points((55, 21), (56, 36)))


@design("hang", "flat", size=0.85)
def _dress(t: Traits) -> Drawing:
    """A narrow waist over a wide skirt, with straps or short sleeves."""
    flare, waist = span(t[0], 2, 18), span(t[1], 33, 38)
    sleeve = [(17, 14), (17, 14), (23, 24)] if t[2] > 0.5 else [(32, 8)]
    top = [(44, 14), (37, 2), (33, 2), *sleeve, (30, 24), (31, 30)]
    skirt = [(waist, 42), (waist, 44), (flare + 6, 78), (flare, 98), (flare, 99), (flare + 14, 103)]
    dress = symmetric([*top, *skirt])
    brush = yield (dress,)
    base = brush.color((0.3, 0.85), (0.5, 0.95))
    brush.fill(base, dress)
    _print_fabric(brush, base)
    for share in (0.2, 0.4, 0.6, 0.8):
        fold = points((span(share, waist, 100 - waist), 46), (span(share, flare, 100 - flare), 102))
        brush.line(darker(base, 0.2), 1.4, fold)
    belt = _contrast(base) if brush.chance(0.5) else darker(base, 0.4)
    brush.fill(belt, rect(waist - 4, 40, 104 - waist, 46))


@design("hang", "flat", size=0.8)
def _trousers(t: Traits) -> Drawing:
    """Straight, slim or wide legs, sometimes shorts."""
    slim = span(t[1], 0, 10)
    waist, outer, inner, hem = 30, span(t[2], 14, 26) + slim * 0.4, 46 - slim * 0.5, 104.0
    if t[3] < 0.25:
        waist, outer, inner, hem = 28, span(t[1], 14, 20), 46, span(t[0], 56, 68)
    outside = [(waist, 0), (waist, 0), (waist - 1, 9), (waist - 4, 26), (outer, hem), (outer, hem)]
    legs = symmetric([*outside, (inner, hem + 1), (inner, hem + 1), (49, 38), (49.5, 36)])
    brush = yield (legs,)
    denim = brush.chance(0.45)
    if denim:
        base = (brush.between(50, 100), brush.between(85, 130), brush.between(130, 185))
    else:
        base = brush.color((0.3, 0.6), (0.3, 0.75))
        if brush.chance(0.5):
            base = (brush.between(150, 200), brush.between(130, 170), brush.between(95, 130))
    brush.fill(base, legs)
    seam = lighter(base, 0.45) if denim else darker(base, 0.3)
    if denim:
        brush.fill(lighter(base, 0.22), ellipse(36, 42, 6, 22), ellipse(64, 42, 6, 22))
    elif brush.chance(0.35):
        brush.line(lighter(base, 0.3), 1.0, *(points((x, 0), (x, 110)) for x in range(10, 95, 9)))
    brush.fill(darker(base, 0.3), rect(20, 0, 80, 8))
    brush.line(seam, 1.2, points((50, 8), (50, 36)), points((50, 24), (45, 29), (46, 9)))
    brush.line(seam, 1.2, points((38, 8), (36, 16), (25, 20)), points((62, 8), (64, 16), (75, 20)))
    brush.line(darker(base, 0.35), 1.6, points((50, 36), (48, 52)), points((50, 36), (52, 52)))
    if brush.fine:
        brush.fill(seam, *(rect(x, -1, x + 2.4, 9) for x in (35, 62)))
        brush.fill((205.0, 170.0, 90.0), ellipse(50, 4, 2))
    brush.fill(darker(base, 0.2), rect(0, hem - 3, 100, hem + 4))


@design("hang", "flat", size=0.8)
def _joggers(t: Traits) -> Drawing:
    """Loose legs drawn together above the feet."""
    loose = span(t[0], 14, 22)
    cuff = loose + 6
    outside = [(29, 0), (29, 0), (27, 8), (23, 26), (loose, 78), (cuff, 92), (cuff, 92)]
    inside = [(cuff, 103), (cuff, 103), (42, 103), (42, 103), (42, 92), (45, 80), (49, 42), (49.5, 38)]
    legs = symmetric([*outside, *inside])
    brush = yield (legs,)
    base = brush.fabric()
    brush.fill(base, legs)
    if brush.chance(0.6):
        edge = points((27, 8), (24, 26), (loose + 3, 78), (loose + 8, 92))
        brush.line(_contrast(base), 3.0, edge, edge * (-1, 1) + (100, 0))
    trim = darker(base, 0.3)
    brush.fill(trim, rect(20, -1, 80, 8), rect(0, 93, 100, 105))
    cord = WHITE if luminance(base) < 150 else INK
    brush.line(cord, 1.3, points((48, 6), (46, 20)), points((52, 6), (54, 20)))
    brush.line(trim, 1.4, points((33, 12), (27, 28)), points((67, 12), (73, 28)), points((50, 8), (50, 38)))
    brush.fill(darker(base, 0.12), band(points((40, 50), (36, 88)), 2), band(points((60, 50), (64, 88)), 2))


CLOTHES = (_tshirt, _hoodie, _dress)
PANTS = (_trousers, _joggers)
