"""Drawings of audio: headphones, speakers, earbuds."""

from __future__ import annotations

from boxcrew.data.embedded.shelf.brush import INK, WHITE, Brush, Color, darker, lighter, luminance, mix
from boxcrew.data.embedded.shelf.design import Drawing, Traits, design, span
from boxcrew.data.embedded.shelf.geometry import arc, band, curve, ellipse, points, rounded


@design("stand", "hang", "flat", size=0.58)
def _headphones(t: Traits) -> Drawing:
    """A band over the head between two cups; what lies behind shows through."""
    width, top = span(t[0], 34, 40), span(t[1], 2, 8)
    arch = band(arc(50, 52, (width, 50 - top), (180, 360)), span(t[2], 7, 10))
    x, cup = 50 - width, 2 * span(t[3], 18, 23)
    left = curve((x - 9, 48), (x + 8, 44), (x + 13, 66), (x + 8, 48 + cup), (x - 9, 44 + cup), (x - 13, 66))
    right = left * (-1, 1) + (100, 0)
    brush = yield arch, left, right
    body = brush.casing()
    trim = brush.color() if brush.chance(0.4) else lighter(body, 0.25)
    brush.fill(body, arch)
    brush.line(trim, 3.0, arc(50, 52, (width + 1.5, 51.5 - top), (215, 325)))
    brush.fill(darker(body, 0.35), left, right)
    for side in (-1, 1):
        x = 50 + side * (width + 4)
        brush.fill(body, ellipse(x, 67, 8, 16))
        brush.fill(trim, ellipse(x + side, 67, 3.5, 9))
        brush.fill(mix(INK, body, 0.25), ellipse(50 + side * (width - 8), 67, 4, 17))


def _cone(brush: Brush, y: float, radius: float, tone: Color) -> None:
    brush.fill(darker(tone, 0.2), ellipse(50, y, radius + 2.5))
    rings = {1.0: (24.0, 24.0, 28.0), 0.84: mix(tone, (60.0, 60.0, 66.0), 0.4), 0.62: (44.0, 44.0, 50.0)}
    for share, color in (rings | {0.28: lighter(tone, 0.2)}).items():
        brush.fill(color, ellipse(50, y, radius * share))


@design("stand", size=0.62, upright=True)
def _speaker(t: Traits) -> Drawing:
    """A bookshelf loudspeaker with two cones."""
    half = span(t[0], 27, 33)
    box = rounded(50 - half, 0, 50 + half, 100, span(t[1], 2, 6))
    brush = yield (box,)
    wooden, tone = brush.chance(0.5), brush.between(0.8, 1.2)
    body = (150 * tone, 100 * tone, 62 * tone) if wooden else brush.casing()
    brush.fill(body, box)
    if wooden:
        brush.line(darker(body, 0.18), 1.2, *(points((x, 0), (x + 3, 100)) for x in range(20, 80, 7)))
    front = darker(body, 0.45) if brush.chance(0.4) else darker(body, 0.12)
    brush.fill(front, rounded(53 - half, 3, 47 + half, 97, 2))
    tone_color = brush.gray(0.3, 0.8) if brush.chance(0.6) else brush.color((0.5, 0.9), (0.6, 0.95))
    _cone(brush, 64, span(t[2], 18, 22), tone_color)
    _cone(brush, 22, span(t[3], 8, 11), tone_color)
    brush.fill((110.0, 220.0, 150.0), ellipse(50, 93, 1.8))


@design("stand", "flat", size=0.6, upright=True)
def _portable(t: Traits) -> Drawing:
    """A portable speaker: a lying drum with a handle."""
    high = span(t[0], 40, 48)
    strap = band(arc(50, 14, (span(t[1], 16, 26), 11), (180, 360)), 4)
    drum = rounded(0, 12, 100, 12 + high, high * 0.42)
    brush = yield strap, drum
    body = brush.color((0.4, 0.85), (0.4, 0.95)) if brush.chance(0.7) else brush.casing()
    brush.fill(darker(body, 0.5), strap)
    brush.fill(body, drum)
    middle, bottom = 12 + high / 2, 12 + high
    brush.fill(darker(body, 0.3), *(ellipse(x, middle, 9, high / 2) for x in (9, 91)))
    brush.fill((40.0, 40.0, 46.0), *(ellipse(x, middle, 6, high * 0.36) for x in (9, 91)))
    if brush.fine:
        brush.line(darker(body, 0.2), 0.9, *(points((x, 14), (x, bottom - 2)) for x in range(22, 82, 4)))
    brush.fill(WHITE, rounded(38, 8 + high / 2, 62, 16 + high / 2, 2))


@design("stand", "flat", size=0.42)
def _earbuds(t: Traits) -> Drawing:
    """A small open case with two buds in it."""
    lid = rounded(10, 0, 90, 46, span(t[0], 12, 18))
    case = rounded(8, 40, 92, span(t[1], 88, 96), span(t[2], 16, 22))
    brush = yield lid, case
    body = WHITE if brush.chance(0.5) else brush.casing()
    brush.fill(darker(body, 0.12), lid)
    brush.fill(darker(body, 0.5), rounded(17, 7, 83, 50, 9))
    brush.fill(body, case)
    brush.fill(darker(body, 0.3), rounded(15, 41, 85, 50, 3))
    bud = WHITE if luminance(body) > 120 or brush.chance(0.4) else lighter(body, 0.3)
    for x in (33, 67):
        brush.fill(darker(bud, 0.1), rounded(x - 4.5, 30, x + 4.5, 54, 4))
        brush.fill(bud, ellipse(x, 26, 11, 10))
        brush.fill(darker(bud, 0.3), ellipse(x + (x - 50) * 0.3, 27, 2.2, 4.4))
    brush.line(darker(body, 0.35), 1.4, points((12, 57), (88, 57)))
    brush.fill((110.0, 210.0, 130.0), ellipse(50, 68, 2.4))


AUDIO = (_headphones, _speaker, _portable, _earbuds)
