"""The layout of a scene: which items are where, what of them is visible, and so the boxes. No colors yet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Bools, Target
from boxcrew.data.embedded.shelf.brush import Mask, silhouette
from boxcrew.data.embedded.shelf.design import Design, Stance, Traits
from boxcrew.data.embedded.shelf.distractors import DISTRACTORS
from boxcrew.data.embedded.shelf.geometry import Pose, unit_pose
from boxcrew.data.embedded.shelf.products_audio import AUDIO
from boxcrew.data.embedded.shelf.products_desk import BOOKS, COMPUTER
from boxcrew.data.embedded.shelf.products_small import PHONE, SHOES, WATCH
from boxcrew.data.embedded.shelf.products_wear import CLOTHES, PANTS
from boxcrew.data.embedded.shelf.surfaces import Backdrop, GoodsRow, choose_backdrop

PRODUCTS: Mapping[str, tuple[Design, ...]] = {
    "clothes": CLOTHES, "pants": PANTS, "shoes": SHOES, "watch": WATCH,
    "phone": PHONE, "audio": AUDIO, "computer": COMPUTER, "books": BOOKS,
}  # fmt: skip
CLASSES = tuple(PRODUCTS)

MIN_SIDE = 16  # pixels of the longer side of a labeled box
MIN_SHORT_SIDE = 6
MIN_VISIBLE = 0.6  # visible share of a labeled object: neither hidden nor outside the image
MAX_NUM_PRODUCTS = 10
NO_LABEL = -1

_MAX_NUM_DISTRACTORS = 5
_MIN_INSIDE = 0.75  # share of an item that is in the image
_FAR_SHARE = 0.06  # of the items are far away: 17 to 26 pixels
_NUM_TRIES = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Item:
    """One product or distractor in a scene."""

    design: Design
    label: int  # 0..7, or NO_LABEL for a distractor
    traits: Traits
    pose: Pose  # to pixels of the patch
    mask: Mask  # of the patch
    stance: Stance
    x: int = 0  # left edge of the patch in the image; the patch may extend beyond it
    y: int = 0  # top edge
    hook_y: float = 0.0  # of hanging items, in pixels of the image

    def window(self, size: int, margin: int = 0) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
        """Return the slices of the image that the patch (with a margin) covers, and those of the patch."""
        height, width = self.mask.shape
        x, y = self.x - margin, self.y - margin
        x0, y0 = max(x, 0), max(y, 0)
        x1, y1 = max(min(x + width + 2 * margin, size), x0), max(min(y + height + 2 * margin, size), y0)
        return (slice(y0, y1), slice(x0, x1)), (slice(y0 - y, y1 - y), slice(x0 - x, x1 - x))


@dataclass(frozen=True, kw_only=True, eq=False)
class ShelfScene:
    """A scene that is laid out but not painted."""

    backdrop: Backdrop
    items: Sequence[Item]  # back to front
    owner: npt.NDArray[np.uint8]  # (size, size): 1 + index of the item visible in a pixel, 0 for none
    target: Target  # boxes of the visible parts of the products


@dataclass(frozen=True, kw_only=True)
class _ItemPlan:
    """An item that has no position yet."""

    design: Design
    label: int
    row: GoodsRow
    nearness: float  # 0 far, 1 near
    length: float  # of the longer side, in pixels


class _Canvas:
    """The image plane while items are placed. It keeps those placed before visible."""

    def __init__(self, size: int) -> None:
        self.owner = np.zeros((size, size), dtype=np.uint8)
        self.items: list[Item] = []
        self._areas: list[int] = []
        self._num_visible: list[int] = []
        self._boxes: list[tuple[int, int, int, int]] = []

    def try_place(self, item: Item) -> bool:
        """Place the item in front of all others, unless that hides too much of a product or of itself."""
        (rows, columns), in_patch = item.window(len(self.owner))
        solid = item.mask >= 128
        cover = solid[in_patch]
        area, visible = int(np.count_nonzero(solid)), int(np.count_nonzero(cover))
        if visible < _MIN_INSIDE * area or self._touches_same_class(item):
            return False
        under = self.owner[rows, columns]
        before = under.copy()
        hidden = self._products_in(before * cover)
        np.copyto(under, len(self.items) + 1, where=cover)
        if not all(self._stays_visible(number, count) for number, count in hidden.items()):
            under[...] = before
            return False
        for number, count in hidden.items():
            self._num_visible[number] -= count
            self._boxes[number] = self.visible_box(number)
        self.items.append(item)
        self._areas.append(area)
        self._num_visible.append(visible)
        self._boxes.append(_extent(cover, columns.start, rows.start))
        return True

    def visible_box(self, number: int) -> tuple[int, int, int, int]:
        """Return the extent of an item's visible pixels; empty if there are none."""
        (rows, columns), _ = self.items[number].window(len(self.owner))
        return _extent(self.owner[rows, columns] == number + 1, columns.start, rows.start)

    def target(self) -> Target:
        products = [k for k, item in enumerate(self.items) if item.label != NO_LABEL]
        return Target.of([self._boxes[k] for k in products], [self.items[k].label for k in products])

    def _products_in(self, owners: npt.NDArray[np.uint8]) -> dict[int, int]:
        """Return the products among `owners`, and how many pixels each has there."""
        counts = np.bincount(owners.ravel(), minlength=len(self.items) + 1)[1:].tolist()
        return {k: count for k, count in enumerate(counts) if count and self.items[k].label != NO_LABEL}

    def _stays_visible(self, number: int, newly_hidden: int) -> bool:
        if self._num_visible[number] - newly_hidden < MIN_VISIBLE * self._areas[number]:
            return False
        x0, y0, x1, y1 = self.visible_box(number)
        return max(x1 - x0, y1 - y0) >= MIN_SIDE and min(x1 - x0, y1 - y0) >= MIN_SHORT_SIDE

    def _touches_same_class(self, item: Item) -> bool:
        """Return whether a product would touch another of its class, which would make its box unclear."""
        height, width = item.mask.shape
        return item.label != NO_LABEL and any(
            item.x < x1 and x0 < item.x + width and item.y < y1 and y0 < item.y + height
            for placed, (x0, y0, x1, y1) in zip(self.items, self._boxes, strict=True)
            if placed.label == item.label
        )


def _extent(solid: Bools, x: int, y: int) -> tuple[int, int, int, int]:
    """Return the box around the true pixels; `x`, `y` is the position of the array in the image."""
    left, top, width, height = cv2.boundingRect(solid.view(np.uint8))
    return x + left, y + top, x + left + width, y + top + height


def _shape(rng: np.random.Generator, plan: _ItemPlan, size: int) -> Item | None:
    """Return the item at the planned length, or as large as its row allows; None if that is too small."""
    *traits, shift_x, shift_y = rng.random(6).tolist()
    turn, stretch, along_x, along_y, mirror = (rng.random(5) * 2 - 1).tolist()
    stance, outline = plan.row.stance, plan.design.outline(traits)
    angle = {"stand": 0.03, "hang": 0.1, "flat": 0.25 if plan.design.upright else 0.5}[stance] * turn
    lean, vertices = 0.1 if stance == "flat" else 0.2, np.concatenate(outline)
    keystone = (lean * along_x, lean * 0.5 * along_y)
    pose = unit_pose(vertices, angle=angle, stretch=0.12 * stretch, keystone=keystone, mirrored=mirror > 0)
    placed = pose.apply(vertices)
    low, high = placed.min(axis=0), placed.max(axis=0)
    width, height = (high - low).tolist()
    scale = min(plan.length / max(width, height), plan.row.room * size / height)
    if max(width, height) * scale < MIN_SIDE + 1 or min(width, height) * scale < MIN_SHORT_SIDE + 1:
        return None
    shift = (1 + shift_x, 1 + shift_y) - low * scale
    pixels, lengths = placed * scale + shift, map(len, outline)
    mask = silhouette(pixels, lengths, math.ceil(width * scale) + 3, math.ceil(height * scale) + 3)
    pose = pose.scaled(scale, shift)
    return Item(design=plan.design, label=plan.label, traits=traits, pose=pose, mask=mask, stance=stance)


def _place(rng: np.random.Generator, plan: _ItemPlan, canvas: _Canvas) -> None:
    """Try some positions in the planned row for the item."""
    size = len(canvas.owner)
    shaped = _shape(rng, plan, size)
    if shaped is None:
        return
    height, width = shaped.mask.shape
    line = (plan.row.far + (plan.row.near - plan.row.far) * plan.nearness) * size
    for across, drop in rng.random((_NUM_TRIES, 2)).tolist():
        x = round(-0.08 * width + across * (size - 0.84 * width))
        hanging = line + (0.02 + 0.03 * drop) * size
        top = {"stand": line - height + 2, "hang": hanging, "flat": line - height / 2}
        if canvas.try_place(replace(shaped, x=x, y=round(top[shaped.stance]), hook_y=line)):
            return


def _choose(
    rng: np.random.Generator, designs: Sequence[Design], backdrop: Backdrop
) -> tuple[Design, GoodsRow]:
    """Choose a design that can be displayed in this backdrop, and its row."""
    stances = {row.stance for row in backdrop.rows}
    possible = [design for design in designs if stances.intersection(design.stances)]
    first, second = rng.random(2).tolist()
    design = possible[int(first * len(possible))]
    rows = [row for row in backdrop.rows if row.stance in design.stances]
    return design, rows[int(second * len(rows))]


def _plan_items(rng: np.random.Generator, backdrop: Backdrop, size: int) -> list[_ItemPlan]:
    """Choose the items of a scene, far ones first, so that near ones are drawn over them."""
    many, zooming, clutter = rng.random(3).tolist()
    num_products = 1 + int(many**0.85 * MAX_NUM_PRODUCTS)
    zoom = 0.62 * 2.3**zooming * (1.12 - 0.04 * num_products)
    order = np.concatenate([rng.permutation(len(CLASSES)), rng.permutation(len(CLASSES))]).tolist()
    labels = order[:num_products] + [NO_LABEL] * int(clutter * (_MAX_NUM_DISTRACTORS + 1))
    plans = []
    for label in labels:
        designs = DISTRACTORS if label == NO_LABEL else PRODUCTS[CLASSES[label]]
        design, row = _choose(rng, designs, backdrop)
        nearness, far, jitter = rng.random(3).tolist()
        near_zoom = zoom * (row.depth + (1 - row.depth) * nearness)
        usual = size / 2 * design.size * near_zoom * (0.75 + 0.55 * jitter)
        length = 17 + 9 * jitter if far < _FAR_SHARE else float(np.clip(usual, 22, size / 2 - 3))
        plans.append(_ItemPlan(design=design, label=label, row=row, nearness=nearness, length=length))
    return sorted(plans, key=lambda plan: (plan.row.stance != "hang", plan.nearness))


def lay_out(rng: np.random.Generator, size: int) -> ShelfScene:
    """Lay out a scene with at least one product. Items that would hide others too much are left out."""
    while True:
        backdrop = choose_backdrop(rng)
        canvas = _Canvas(size)
        for plan in _plan_items(rng, backdrop, size):
            _place(rng, plan, canvas)
        target = canvas.target()
        if len(target):
            return ShelfScene(backdrop=backdrop, items=canvas.items, owner=canvas.owner, target=target)
