"""The setting of a scene: its furniture as numbers, before anything is painted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from boxcrew.data.embedded.shelf.design import Stance

SettingKind = Literal["shelf", "table", "rail", "flat"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of items. Numbers are fractions of the image's side."""

    stance: Stance
    near: float  # y of the feet (stand), the hook (hang) or the middle (flat) of the nearest item
    far: float  # the same of the farthest item
    room: float  # maximum height of an item
    depth: float = 1.0  # size of a far item relative to a near one


@dataclass(frozen=True, kw_only=True)
class Setting:
    kind: SettingKind
    lines: tuple[float, ...]  # y of the boards' tops, the table's back edge, or the floor and the rail
    rows: tuple[Row, ...]


def _shelf(rng: np.random.Generator) -> Setting:
    num_boards = 2 + int(rng.random() < 0.5)
    lowest = 0.9 + 0.07 * rng.random()
    gap = (lowest - 0.02) / num_boards * (0.92 + 0.08 * rng.random())
    boards = tuple(lowest - gap * k for k in range(num_boards))
    stand = [Row(stance="stand", near=y + 0.012, far=y, room=gap * 0.86) for y in boards]
    hang = [Row(stance="hang", near=y - gap + 0.06, far=y - gap + 0.045, room=gap * 0.84) for y in boards]
    return Setting(kind="shelf", lines=boards, rows=(*stand, *hang))


def _table(rng: np.random.Generator) -> Setting:
    edge = 0.4 + 0.22 * rng.random()
    stand = Row(stance="stand", near=0.97, far=edge + 0.03, room=0.5, depth=0.6)
    hang = Row(stance="hang", near=0.1, far=0.02, room=0.5)
    return Setting(kind="table", lines=(edge,), rows=(stand, hang))


def _rail(rng: np.random.Generator) -> Setting:
    floor, rail = 0.66 + 0.12 * rng.random(), 0.04 + 0.06 * rng.random()
    stand = Row(stance="stand", near=0.97, far=floor + 0.02, room=0.5, depth=0.75)
    hang = Row(stance="hang", near=rail, far=rail, room=0.5)
    return Setting(kind="rail", lines=(floor, rail), rows=(stand, hang))


def _flat(rng: np.random.Generator) -> Setting:  # noqa: ARG001  all makers have one signature
    return Setting(kind="flat", lines=(), rows=(Row(stance="flat", near=0.92, far=0.08, room=0.5),))


def choose_setting(rng: np.random.Generator) -> Setting:
    makers = {0.35: _shelf, 0.65: _table, 0.8: _rail, 1.0: _flat}  # by the upper limit of the drawn number
    drawn = rng.random()
    return next(maker for limit, maker in makers.items() if drawn < limit)(rng)
