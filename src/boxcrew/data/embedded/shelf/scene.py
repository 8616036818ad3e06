"""Scenes of the set: the same seed, split and index give the same image and boxes on every machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Image, Target
from boxcrew.data.embedded.shelf.brush import Brush
from boxcrew.data.embedded.shelf.geometry import arc, points
from boxcrew.data.embedded.shelf.layout import Item, ShelfScene, lay_out
from boxcrew.data.embedded.shelf.surfaces import paint_surfaces

SPLIT_NUMBERS = {"train": 0, "val": 1, "test": 2}
_PAINT = 1  # separates the random numbers of painting from those of the layout
_NOISE_SIDE = 600


@dataclass(frozen=True, kw_only=True)
class Light:
    """The light of a scene: its direction and the shadows it casts."""

    x: float  # direction it comes from: -1 left, 1 right
    y: float  # -1 from above
    shadow: float  # how dark shadows are, 0..1
    soft: float  # width of shadows as a share of an item's size


def make_scene(*, seed: int, split: str, index: int, size: int = 320) -> ShelfScene:
    """Return the unpainted scene with its boxes, which is cheap. `size` is the image side, 160 to 500."""
    assert 160 <= size <= 500, size  # textures are 512 wide; smaller images have no room for products
    return lay_out(np.random.default_rng([seed, SPLIT_NUMBERS[split], index]), size)


def draw_scene(*, seed: int, split: str, index: int, size: int = 320) -> tuple[Image, Target]:
    """Return the image (size, size, 3) and its boxes, which are those of `make_scene`."""
    scene = make_scene(seed=seed, split=split, index=index, size=size)
    rng = np.random.default_rng([seed, SPLIT_NUMBERS[split], index, _PAINT])
    image = paint_surfaces(scene.backdrop, size, rng)
    side, up, dark, soft = rng.random(4).tolist()
    light = Light(x=2 * side - 1, y=-0.4 - 0.6 * up, shadow=0.25 + 0.3 * dark, soft=0.05 + 0.07 * soft)
    for item in scene.items:
        _cast_shadow(image, item, light)
        if item.stance == "hang":
            _draw_hook(image, item)
        paint_item(image, item, rng, light)
    return _expose(image, rng), scene.target


def _cast_shadow(image: Image, item: Item, light: Light) -> None:
    """Darken the background around the item and under its foot."""
    height, width = item.mask.shape
    radius = max(2, round(light.soft * max(height, width)))
    margin = 3 * radius
    shadow = np.zeros((height + 2 * margin, width + 2 * margin), dtype=np.uint8)
    left, top = margin - round(light.x * radius), margin - round(light.y * radius)
    shadow[top : top + height, left : left + width] = item.mask
    if item.stance == "stand":
        foot = (width // 2 + margin - round(light.x * radius), margin + height - 3)
        cv2.ellipse(shadow, foot, (round(width * 0.52), max(2, radius)), 0, 0, 360, 255, -1)
    shadow = cv2.blur(cv2.blur(shadow, (2 * radius + 1,) * 2), (radius + 1,) * 2)
    in_image, in_patch = item.window(len(image), margin)
    keep = cv2.convertScaleAbs(shadow[in_patch], alpha=-light.shadow, beta=255)
    image[in_image] = cv2.multiply(image[in_image], cv2.merge([keep, keep, keep]), scale=1 / 255)


def _draw_hook(image: Image, item: Item) -> None:
    """Draw a bent wire from the hook down into the item, with a highlight."""
    height, width = item.mask.shape
    x, bottom = item.x + width / 2, item.y + min(12.0, 0.2 * height)
    bend = arc(x - 3.5, item.hook_y + 1, (3.5, 4.5), (-180, 0))
    wire = np.rint(np.concatenate([bend, [(x, bottom)]]) * 16).astype(np.int32)
    for color, thickness in (((70, 68, 70), 2), ((190, 188, 186), 1)):
        cv2.polylines(image, [wire], False, color, thickness, cv2.LINE_AA, 4)  # noqa: FBT003 - not closed


def paint_item(image: Image, item: Item, rng: np.random.Generator, light: Light) -> None:
    """Paint the item into the image, within its mask."""
    height, width = item.mask.shape
    patch = np.full((height, width, 3), 72, dtype=np.uint8)  # shows faintly as a line around the item
    item.design.paint(Brush(patch, item.pose, rng), item.traits)
    in_image, in_patch = item.window(len(image))
    lit = patch[in_patch] * _relief(item, light)[in_patch][..., None]
    cover = (item.mask[in_patch].astype(np.float32) / 255)[..., None]
    behind = image[in_image]
    image[in_image] = np.clip(behind + (lit - behind) * cover, 0, 255).astype(np.uint8)


def _relief(item: Item, light: Light) -> npt.NDArray[np.float32]:
    """Return the brightness over the patch: rounded at the edges, brighter towards the light."""
    height, width = item.mask.shape
    radius = max(1, round(0.05 * max(height, width)))
    edge = cv2.blur(item.mask, (2 * radius + 1,) * 2, borderType=cv2.BORDER_CONSTANT).astype(np.float32)
    across = np.linspace(-0.1 * light.x, 0.1 * light.x, width, dtype=np.float32)
    down = np.linspace(0.08, -0.08, height, dtype=np.float32)
    return np.asarray((0.74 + edge * (0.3 / 255)) * (1 + across[None, :] + down[:, None]))


@lru_cache(maxsize=1)
def _noise() -> npt.NDArray[np.float32]:
    """Return noise that all images share: fresh noise would cost more than all the painting."""
    return np.random.default_rng(15).standard_normal((_NOISE_SIDE, _NOISE_SIDE, 3)).astype(np.float32)


def _light_map(rng: np.random.Generator, size: int) -> npt.NDArray[np.float32]:
    """Return (size, size, 3) factors: level, tint and unevenness of the light, sometimes a window's beam."""
    bright, beam, x, lean = rng.random(4).tolist()
    cast = 1 + 0.09 * (rng.random(3) - 0.5)
    coarse = (0.84 + 0.28 * bright) * cast * (1 + 0.3 * (rng.random((3, 3, 1)) - 0.5))
    small = cv2.resize(coarse.astype(np.float32), (40, 40), interpolation=cv2.INTER_LINEAR)
    if beam < 0.3:
        left, slant = -5 + 40 * x, 30 * (lean - 0.5)
        lit = np.zeros((40, 40), dtype=np.float32)
        for x0, x1 in ((left, left + 7), (left + 9, left + 16)):
            pane = points((x0, 0), (x1, 0), (x1 + slant, 40), (x0 + slant, 40))
            cv2.fillPoly(lit, [np.rint(pane * 16).astype(np.int32)], 1.0, shift=4)
        small *= 1 + 0.28 * cv2.blur(lit, (3, 3))[..., None]
    return np.asarray(cv2.resize(small, (size, size), interpolation=cv2.INTER_LINEAR))


def _expose(image: Image, rng: np.random.Generator) -> Image:
    """Apply the light, then the slight blur and noise of a camera."""
    size = len(image)
    blur, grain, x, y = rng.random(4).tolist()
    if blur < 0.35:
        image = cv2.GaussianBlur(image, (3, 3), 0.4 + blur)
    left, top = int(x * (_NOISE_SIDE - size)), int(y * (_NOISE_SIDE - size))
    noise = _noise()[top : top + size, left : left + size]
    exposed = np.asarray(cv2.scaleAdd(noise, 1 + 4 * grain, image * _light_map(rng, size)))
    return exposed.clip(0, 255).astype(np.uint8)
