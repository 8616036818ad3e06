from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from boxcrew.core.boxes import area, centers_inside, iou
from boxcrew.core.types import Target
from boxcrew.data.transforms import geometry
from boxcrew.data.transforms.geometry import (
    Expand,
    HorizontalFlip,
    Jitter,
    Letterbox,
    MinIoUCrop,
    Scene,
    Squash,
    without_slivers,
)
from boxcrew.data.transforms.view import View

SEEDS = st.integers(0, 2**32)


def random_scene(rng: np.random.Generator, *, most: int = 6) -> Scene:
    width, height = (int(side) for side in rng.integers(20, 400, 2))
    count = int(rng.integers(0, most + 1))
    x, y = np.sort(rng.uniform(0, width, (count, 2))), np.sort(rng.uniform(0, height, (count, 2)))
    boxes = np.stack([x[:, 0], y[:, 0], x[:, 1] + 0.5, y[:, 1] + 0.5], axis=1)
    target = Target.of(
        boxes, np.arange(count), difficult=rng.random(count) < 0.5, crowd=rng.random(count) < 0.2
    )
    return Scene(view=View.identity(width, height), target=target)


def ends(scene: Scene, start: Scene) -> np.ndarray:
    """The boxes that the view alone gives for the objects left, to compare with those carried along."""
    return scene.view.boxes(start.target.boxes[scene.target.labels])


@given(SEEDS)
def test_expand_moves_boxes_without_changing_their_size(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = random_scene(rng)
    scene = Expand(limit=4, p=1)(start, rng)
    assert 1 <= scene.view.width / start.view.width <= 4.05
    assert np.allclose(
        scene.target.boxes[:, 2:] - scene.target.boxes[:, :2],
        start.target.boxes[:, 2:] - start.target.boxes[:, :2],
        atol=1e-3,
    )
    whole = scene.view.boxes(np.array([[0, 0, start.view.width, start.view.height]], dtype=np.float32))[0]
    assert whole.min() >= 0
    assert whole[2] <= scene.view.width
    assert whole[3] <= scene.view.height
    assert np.allclose(scene.target.boxes, ends(scene, start), atol=1e-2)


def test_expand_spreads_over_its_range() -> None:
    rng = np.random.default_rng(0)
    start = Scene(view=View.identity(100, 100), target=Target.of([], []))
    widths = np.array([Expand(limit=4, p=0.5)(start, rng).view.width for _ in range(2000)])
    assert 0.45 < (widths > 100).mean() < 0.55
    assert widths.max() > 390
    assert 240 < widths[widths > 100].mean() < 260


@given(SEEDS)
def test_crop_keeps_boxes_by_their_center_and_cuts_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = random_scene(rng)
    scene = MinIoUCrop()(start, rng)
    x0, y0 = -scene.view.x.shift, -scene.view.y.shift
    window = np.array([x0, y0, x0 + scene.view.width, y0 + scene.view.height])
    assert window.min() >= 0
    assert window[2] <= start.view.width
    assert window[3] <= start.view.height
    if scene is start:
        return
    kept = np.flatnonzero(centers_inside(start.target.boxes, window))
    assert scene.target.labels.tolist() == kept.tolist()
    assert len(kept) or not len(start.target)
    assert scene.target.difficult.tolist() == start.target.difficult[kept].tolist()
    expected = np.clip(ends(scene, start), 0, [scene.view.width, scene.view.height] * 2)
    assert np.allclose(scene.target.boxes, expected, atol=1e-2)


@given(SEEDS)
def test_jitter_stays_near_and_keeps_boxes_by_their_center(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = random_scene(rng)
    scene = Jitter(limit=0.25)(start, rng)
    x0, y0 = -scene.view.x.shift, -scene.view.y.shift
    ratios = scene.view.width / start.view.width, scene.view.height / start.view.height
    slack = 1 / min(start.view.width, start.view.height)  # of rounding to whole pixels
    assert 0.75 - slack < min(ratios) <= max(ratios) < 1.33 + slack
    # A smaller window lies within the image, a larger one around it.
    for low, side, whole in (
        (x0, scene.view.width, start.view.width),
        (y0, scene.view.height, start.view.height),
    ):
        assert min(0, whole - side) <= low <= max(0, whole - side)
    window = np.array([x0, y0, x0 + scene.view.width, y0 + scene.view.height])
    kept = np.flatnonzero(centers_inside(start.target.boxes, window))
    assert scene.target.labels.tolist() == kept.tolist()
    expected = np.clip(ends(scene, start), 0, [scene.view.width, scene.view.height] * 2)
    assert np.allclose(scene.target.boxes, expected, atol=1e-2)


def test_jitter_spreads_over_its_range() -> None:
    rng = np.random.default_rng(0)
    start = Scene(view=View.identity(1000, 1000), target=Target.of([], []))
    views = [Jitter(limit=0.2)(start, rng).view for _ in range(2000)]
    zooms = np.array([1000 / np.sqrt(view.width * view.height) for view in views])
    aspects = np.array([view.width / view.height for view in views])
    assert (zooms.min(), zooms.max()) == pytest.approx((1 / 1.2, 1.2), abs=0.005)
    assert 0.45 < (zooms > 1).mean() < 0.55
    assert (aspects.min(), aspects.max()) == pytest.approx((1 / 1.1, 1.1), abs=0.005)


@pytest.mark.parametrize("minimum", [0.0, 0.3, 0.7])
def test_crop_meets_its_minimum_iou(minimum: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geometry, "_MIN_IOU", (minimum,))
    num_cropped = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        start = random_scene(rng, most=40)
        scene = MinIoUCrop()(start, rng)
        if scene is start or not len(start.target):
            continue
        num_cropped += 1
        x0, y0 = -scene.view.x.shift, -scene.view.y.shift
        window = np.array([[x0, y0, x0 + scene.view.width, y0 + scene.view.height]], dtype=np.float32)
        inside = start.target.select(centers_inside(start.target.boxes, window[0]))
        assert iou(window, inside.boxes).max() >= minimum
    assert num_cropped > 15


def test_crops_have_the_papers_sizes_and_the_whole_stays_common() -> None:
    rng = np.random.default_rng(0)
    start = Scene(view=View.identity(400, 200), target=Target.of([], []))
    views = [MinIoUCrop()(start, rng).view for _ in range(1000)]
    sides = np.array([(view.width / 400, view.height / 200) for view in views])
    aspect, size = sides[:, 0] / sides[:, 1], np.sqrt(sides.prod(axis=1))
    assert aspect.min() > 0.48
    assert aspect.max() < 2.08
    assert size.min() > 0.29
    assert size.min() < 0.35
    whole = (sides == 1).all(axis=1).mean()
    assert 1 / 7 - 0.04 < whole < 1 / 7 + 0.05


@given(SEEDS)
def test_flip_mirrors_and_twice_is_the_identity(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = random_scene(rng)
    once = HorizontalFlip(p=1)(start, rng)
    assert np.allclose(once.target.boxes[:, 0], start.view.width - start.target.boxes[:, 2], atol=1e-3)
    assert np.allclose(area(once.target.boxes), area(start.target.boxes), rtol=1e-3, atol=1e-1)
    twice = HorizontalFlip(p=1)(once, rng)
    assert twice.view == start.view
    assert np.allclose(twice.target.boxes, start.target.boxes, atol=1e-4)
    assert HorizontalFlip(p=0)(start, rng) is start


@given(SEEDS)
def test_squash_fills_and_letterbox_fits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = random_scene(rng)
    assume(max(start.view.width, start.view.height) < 10 * min(start.view.width, start.view.height))
    full = np.array([[0, 0, start.view.width, start.view.height]], dtype=np.float32)
    squashed = Squash(width=300, height=200)(start, rng)
    assert np.allclose(squashed.view.boxes(full), [[0, 0, 300, 200]], atol=1e-3)
    boxed = Letterbox(width=300, height=200)(start, rng)
    x0, y0, x1, y1 = boxed.view.boxes(full)[0]
    assert abs((x1 - x0) / (y1 - y0) * start.view.height / start.view.width - 1) < 0.06
    assert np.isclose(x1 - x0, 300, atol=0.51) or np.isclose(y1 - y0, 200, atol=0.51)
    assert abs(x0 - (300 - x1)) <= 1.001
    assert abs(y0 - (200 - y1)) <= 1.001
    assert np.allclose(boxed.target.boxes, ends(boxed, start), atol=1e-2)


def test_slivers_are_left_out_and_the_rest_cut() -> None:
    boxes: list[list[float]] = [
        [-5, -5, 10, 10],
        [3, 3, 3.9, 9],
        [49.2, 0, 60, 50],
        [0, 0, 1, 1],
        [60, 60, 70, 70],
    ]
    scene = without_slivers(Scene(view=View.identity(50, 50), target=Target.of(boxes, range(5))))
    assert scene.target.labels.tolist() == [0, 3]
    assert scene.target.boxes.tolist() == [[0, 0, 10, 10], [0, 0, 1, 1]]
