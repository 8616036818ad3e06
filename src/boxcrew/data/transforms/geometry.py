"""Geometric transforms: each maps a scene to a new scene, as numbers; no pixel is touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from boxcrew.core.boxes import centers_inside, clip
from boxcrew.core.input_size import Extent
from boxcrew.core.types import Bools, Target
from boxcrew.data.transforms.view import Pair, View, move_boxes

Doubles = npt.NDArray[np.float64]

_TRIALS = 50
_MIN_IOU = (None, 0.0, 0.1, 0.3, 0.5, 0.7, 0.9)  # None: no crop; 0.0: any crop with a box in it
_TILE_ZOOM = (0.5, 1.5)  # of an image in a mosaic, relative to its size as the only image of an input


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """An image that is not rendered yet, and its objects in pixels of the view's canvas."""

    view: View
    target: Target

    def then(self, *, scale: Pair = (1, 1), shift: Pair = (0, 0), size: tuple[int, int]) -> Scene:
        """Return the scene scaled, then shifted, with its canvas cropped or padded to size."""
        view = self.view.then(scale=scale, shift=shift, size=size)
        boxes = move_boxes(self.target.boxes, scale=scale, shift=shift)
        return replace(self, view=view, target=self.target.with_boxes(boxes))


Geometry = Callable[[Scene, np.random.Generator], Scene]


@dataclass(frozen=True, kw_only=True)
class Expand:
    """Zooms out with probability `p`: a canvas 1..`limit` times as large, with the image anywhere on it."""

    limit: float
    p: float

    def __call__(self, scene: Scene, rng: np.random.Generator) -> Scene:
        chance, ratio, left, top = rng.random(4)
        if chance >= self.p:
            return scene
        zoom = 1 + (self.limit - 1) * ratio
        width, height = round(scene.view.width * zoom), round(scene.view.height * zoom)
        # Whole pixels: a view that is not scaled then needs no interpolation.
        x = int(left * (width - scene.view.width + 1))
        y = int(top * (height - scene.view.height + 1))
        return scene.then(shift=(x, y), size=(width, height))


@dataclass(frozen=True)
class MinIoUCrop:
    """Crops a random window that overlaps some object by a minimum IoU drawn at random (SSD, section 2.2).

    Boxes whose center is in the window are kept and clipped to it; at least one is, if there was any. A
    minimum that no trial meets is replaced by another; not to crop is always among the choices.
    """

    def __call__(self, scene: Scene, rng: np.random.Generator) -> Scene:
        edges = scene.target.boxes.T.astype(np.float64)
        for choice in rng.permutation(len(_MIN_IOU)):
            minimum = _MIN_IOU[choice]
            if minimum is None:
                break
            windows = _windows(scene.view.width, scene.view.height, rng)
            fitting = _fits(windows, edges, minimum)
            if fitting.any():
                return _crop(scene, windows[:, fitting.argmax()])
        return scene


# NumPy's overhead per call dominates the next two functions: they are written for few calls.


def _windows(width: int, height: int, rng: np.random.Generator) -> Doubles:
    """Return (4, trials) crops in whole pixels: 0.3..1 of the side (geometric mean), 1/2..2 of the aspect."""
    size, aspect, left, top = rng.random((4, _TRIALS))
    size = 0.3 + 0.7 * size
    square = size * size
    lowest, highest = np.maximum(0.5, square), np.minimum(2, 1 / square)  # both sides must fit
    root = np.sqrt(lowest + (highest - lowest) * aspect)
    w = np.minimum(np.maximum(np.rint(width * size * root), 1), width)
    h = np.minimum(np.maximum(np.rint(height * size / root), 1), height)
    x, y = np.floor(left * (width + 1 - w)), np.floor(top * (height + 1 - h))
    return np.array((x, y, x + w, y + h))


def _fits(windows: Doubles, edges: Doubles, minimum: float) -> Bools:
    """Return (trials,) whether a box of `edges` (4, N) has its center inside and IoU >= minimum; all windows
    fit if there are no boxes.
    """
    if not edges.size:
        return np.ones(windows.shape[1], dtype=np.bool_)
    left, top, right, bottom = windows[..., None]
    x0, y0, x1, y1 = edges
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    fits = (x > left) & (x < right) & (y > top) & (y < bottom)
    if minimum > 0:
        # A box with its center inside overlaps: the sides of the intersection are above zero.
        intersection = (np.minimum(x1, right) - np.maximum(x0, left)) * (
            np.minimum(y1, bottom) - np.maximum(y0, top)
        )
        union = (right - left) * (bottom - top) + (x1 - x0) * (y1 - y0) - intersection
        fits &= intersection >= minimum * union
    result: Bools = fits.any(axis=1)
    return result


@dataclass(frozen=True, kw_only=True)
class Jitter:
    """Zooms in or out by up to a factor of 1 + `limit`, changes the aspect ratio by up to half of that, and
    shifts as far as the image then reaches. Boxes whose center is visible are kept, and clipped.
    """

    limit: float

    def __call__(self, scene: Scene, rng: np.random.Generator) -> Scene:
        zoom, aspect, left, top = rng.random(4)
        zoom = (1 + self.limit) ** (2 * zoom - 1)
        root = (1 + self.limit / 2) ** (aspect - 0.5)  # of the change of the aspect ratio
        width, height = scene.view.width, scene.view.height
        w, h = (max(1, round(side)) for side in (width / zoom / root, height / zoom * root))
        # The same formula for a window larger than the image, which lies around it, and a smaller one.
        x, y = round(left * (width - w)), round(top * (height - h))
        return _crop(scene, np.array((x, y, x + w, y + h), dtype=np.float64))


def _crop(scene: Scene, window: Doubles) -> Scene:
    x0, y0, x1, y1 = (int(edge) for edge in window)
    kept = replace(scene, target=scene.target.select(centers_inside(scene.target.boxes, window)))
    return clipped(kept.then(shift=(-x0, -y0), size=(x1 - x0, y1 - y0)))


@dataclass(frozen=True, kw_only=True)
class HorizontalFlip:
    """Mirrors the image horizontally with probability `p`."""

    p: float

    def __call__(self, scene: Scene, rng: np.random.Generator) -> Scene:
        if rng.random() >= self.p:
            return scene
        width, height = scene.view.width, scene.view.height
        return scene.then(scale=(-1, 1), shift=(width, 0), size=(width, height))


@dataclass(frozen=True, kw_only=True)
class Squash:
    """Resizes to an exact size, changing the aspect ratio."""

    width: int
    height: int

    def __call__(self, scene: Scene, rng: np.random.Generator) -> Scene:  # noqa: ARG002
        scale = (self.width / scene.view.width, self.height / scene.view.height)
        return scene.then(scale=scale, size=(self.width, self.height))


@dataclass(frozen=True, kw_only=True)
class Letterbox:
    """Resizes to fit into `width` x `height`, keeping the aspect ratio to the whole pixel. The rest of that
    size is padding around the image, or, with a `canvas`, the rest of the canvas below and to the right.
    """

    width: int
    height: int
    canvas: Extent | None = None

    def __call__(self, scene: Scene, rng: np.random.Generator) -> Scene:  # noqa: ARG002
        ratio = min(self.width / scene.view.width, self.height / scene.view.height)
        inner_width = max(1, round(scene.view.width * ratio))
        inner_height = max(1, round(scene.view.height * ratio))
        scale = (inner_width / scene.view.width, inner_height / scene.view.height)
        if self.canvas is not None:
            return scene.then(scale=scale, size=self.canvas)
        shift = ((self.width - inner_width) // 2, (self.height - inner_height) // 2)
        return scene.then(scale=scale, shift=shift, size=(self.width, self.height))


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Resizes, enlarges or shrinks the result at random, and shows the part of it that falls on a tile of a
    mosaic. Boxes whose center is visible are kept, and clipped.
    """

    resizing: Geometry  # to the size that the image would have alone
    width: int
    height: int

    def __call__(self, scene: Scene, rng: np.random.Generator) -> Scene:
        zoom, left, top = rng.random(3)
        smallest, largest = _TILE_ZOOM
        zoom = smallest * (largest / smallest) ** zoom
        alone, view = self.resizing(scene, rng).view, scene.view
        w = max(1, round(zoom * alone.x.scale / view.x.scale * view.width))
        h = max(1, round(zoom * alone.y.scale / view.y.scale * view.height))
        # The same formula for an image larger than the tile, which is cropped, and a smaller one.
        shift = (round(left * (self.width - w)), round(top * (self.height - h)))
        scale = (w / view.width, h / view.height)
        scene = scene.then(scale=scale, shift=shift, size=(self.width, self.height))
        visible = centers_inside(scene.target.boxes, (0, 0, self.width, self.height))
        return clipped(replace(scene, target=scene.target.select(visible)))


def clipped(scene: Scene) -> Scene:
    """Return the scene with its boxes clipped to the canvas."""
    boxes = clip(scene.target.boxes, scene.view.width, scene.view.height)
    return replace(scene, target=scene.target.with_boxes(boxes))


def without_slivers(scene: Scene) -> Scene:
    """Return the scene with its boxes clipped, without those that have a side under one pixel."""
    scene = clipped(scene)
    x0, y0, x1, y1 = scene.target.boxes.T
    return replace(scene, target=scene.target.select((x1 - x0 >= 1) & (y1 - y0 >= 1)))
