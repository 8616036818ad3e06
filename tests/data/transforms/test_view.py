from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxcrew.core.boxes import clip
from boxcrew.core.types import Floats, Image
from boxcrew.data.transforms.view import View

FILL = (0, 0, 255)


def noise(width: int, height: int, seed: int = 0) -> Image:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def rendered(view: View, image: Image) -> Image:
    return view.pad(view.resample(image), FILL)


def flipped(view: View) -> View:
    return view.then(scale=(-1, 1), shift=(view.width, 0), size=(view.width, view.height))


def random_view(view: View, rng: np.random.Generator, *, zoom: tuple[float, float]) -> View:
    """Extends, cuts, mirrors and scales by a factor of `zoom` on each axis, at random."""
    left, top = (
        rng.integers(-view.width // 4, view.width // 2),
        rng.integers(-view.height // 4, view.height // 2),
    )
    size = int(view.width * rng.uniform(0.8, 1.6)), int(view.height * rng.uniform(0.8, 1.6))
    view = view.then(shift=(float(left), float(top)), size=size)
    view = flipped(view) if rng.random() < 0.5 else view
    scale = np.exp(rng.uniform(np.log(zoom[0]), np.log(zoom[1]), 2))
    wanted = max(8, round(view.width * scale[0])), max(8, round(view.height * scale[1]))
    return view.then(scale=(wanted[0] / view.width, wanted[1] / view.height), size=wanted)


def box_of_pixels(mask: np.ndarray) -> Floats:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], dtype=np.float32)


def test_whole_view_is_the_image_bit_for_bit_in_new_memory() -> None:
    image = noise(37, 23)
    drawn = rendered(View.identity(37, 23), image)
    assert (drawn == image).all()
    assert not np.shares_memory(drawn, image)


def test_flip_is_exact_and_twice_is_the_identity() -> None:
    image = noise(37, 23)
    view = flipped(View.identity(37, 23))
    once = rendered(view, image)
    assert (once == image[:, ::-1]).all()
    assert (rendered(view, once) == image).all()
    assert flipped(view) == View.identity(37, 23)


def test_both_axes_mirrored() -> None:
    image = noise(11, 7)
    view = View.identity(11, 7).then(scale=(-1, -1), shift=(11, 7), size=(11, 7))
    assert (rendered(view, image) == image[::-1, ::-1]).all()


def test_whole_pixel_crop_is_exact() -> None:
    image = noise(40, 30)
    view = View.identity(40, 30).then(shift=(-5, -7), size=(20, 10))
    assert (rendered(view, image) == image[7:17, 5:25]).all()


@pytest.mark.parametrize("zoom", [(0.5, 1.0), (1.0, 4.0), (0.05, 0.3), (0.2, 2.0)])
@pytest.mark.parametrize("seed", range(25))
def test_drawn_edges_are_where_the_boxes_say(zoom: tuple[float, float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    image = np.zeros((480, 640, 3), dtype=np.uint8)
    x0, y0 = rng.integers(40, 200, 2)
    x1, y1 = x0 + rng.integers(200, 400), y0 + rng.integers(150, 270)
    image[y0:y1, x0:x1] = (255, 255, 0)
    view = random_view(View.identity(640, 480), rng, zoom=zoom)
    expected = clip(view.boxes(np.array([[x0, y0, x1, y1]], dtype=np.float32)), view.width, view.height)[0]
    drawn = box_of_pixels(rendered(view, image)[..., 0] > 127)
    assert np.abs(drawn - expected).max() <= 1.0


@pytest.mark.parametrize("scale", [0.5, 0.3, 0.11, 0.03])
def test_no_aliasing_when_much_smaller(scale: float) -> None:
    """Stripes too fine for the canvas become an even gray."""
    image = np.zeros((600, 900, 3), dtype=np.uint8)
    image[:, ::2] = 200
    size = round(900 * scale), round(600 * scale)
    drawn = rendered(View.identity(900, 600).then(scale=(size[0] / 900, size[1] / 600), size=size), image)
    assert np.abs(drawn.astype(float) - 100).max() <= 200 / (2 / scale) + 2


def test_scaling_keeps_the_mean_and_the_place() -> None:
    """A smooth ramp reads off where each canvas pixel was sampled."""
    ramp = np.broadcast_to(np.linspace(0, 255, 512)[None, :, None], (64, 512, 3)).astype(np.uint8)
    for width in (512, 300, 128, 57, 1000):
        drawn = rendered(View.identity(512, 64).then(scale=(width / 512, 1), size=(width, 64)), ramp)
        centers = (np.arange(width) + 0.5) * 512 / width - 0.5
        inside = slice(width // 20, -width // 20)
        assert np.abs(drawn[30, inside, 0] - centers[inside] * 255 / 511).max() <= 1.5


def test_enlarged_edges_are_not_mixed_with_the_fill() -> None:
    image = np.full((10, 10, 3), 200, dtype=np.uint8)
    view = View.identity(10, 10).then(shift=(3, 3), size=(16, 16)).then(scale=(7.3, 7.3), size=(117, 117))
    colors = np.unique(rendered(view, image).reshape(-1, 3), axis=0)
    assert colors.tolist() == [[0, 0, 255], [200, 200, 200]]


def test_what_was_cropped_away_stays_unseen_when_the_canvas_grows() -> None:
    image = np.full((60, 60, 3), 90, dtype=np.uint8)
    image[20:40, 20:40] = 200
    view = View.identity(60, 60).then(shift=(-20, -20), size=(20, 20)).then(shift=(10, 10), size=(40, 40))
    drawn = rendered(view, image)
    assert (drawn[10:30, 10:30] == 200).all()
    drawn[10:30, 10:30] = FILL
    assert (drawn == FILL).all()


def test_nothing_to_see_is_all_fill() -> None:
    view = View.identity(20, 20).then(shift=(30, 0), size=(60, 20)).then(size=(10, 10))
    assert (rendered(view, noise(20, 20)) == FILL).all()
    assert rendered(view, noise(20, 20)).shape == (10, 10, 3)


def test_a_thin_image_leaves_at_least_a_pixel() -> None:
    image = np.full((2, 1000, 3), 77, dtype=np.uint8)
    view = View.identity(1000, 2).then(scale=(0.1, 0.1), shift=(0, 49.9), size=(100, 100))
    assert (rendered(view, image) == 77).all(axis=2).sum() == 100


@given(st.integers(0, 10_000))
def test_inverse_boxes_undoes_boxes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    view = random_view(View.identity(320, 240), rng, zoom=(0.2, 4))
    corner = rng.uniform(0, 100, (5, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(1, 100, (5, 2))], axis=1).astype(np.float32)
    before = boxes.copy()
    assert np.abs(view.inverse_boxes(view.boxes(boxes)) - boxes).max() < 1e-2
    assert (boxes == before).all()


def test_render_does_not_change_the_image() -> None:
    image = noise(64, 48)
    image.setflags(write=False)
    before = image.copy()
    for seed in range(20):
        rendered(random_view(View.identity(64, 48), np.random.default_rng(seed), zoom=(0.1, 3)), image)
    assert (image == before).all()


def averaged(image: Image, factor: int) -> Image:
    """Each block of factor x factor pixels made one; edges are repeated to whole blocks."""
    height, width = image.shape[:2]
    grown = np.pad(image, ((0, -height % factor), (0, -width % factor), (0, 0)), mode="edge").astype(float)
    blocks = grown.reshape(grown.shape[0] // factor, factor, grown.shape[1] // factor, factor, 3)
    result: Image = blocks.mean(axis=(1, 3)).round().astype(np.uint8)
    return result


def smooth(width: int, height: int) -> Image:
    across, down = np.linspace(0, 255, width), np.linspace(0, 255, height)
    channels = [
        np.tile(across, (height, 1)),
        np.tile(down[:, None], (1, width)),
        np.full((height, width), 99),
    ]
    return np.stack(channels, axis=2).astype(np.uint8)


@given(seed=st.integers(0, 500))
def test_a_source_read_at_its_reduction_shows_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    width, height = (int(n) for n in rng.integers(150, 400, 2))
    view = random_view(View.identity(width, height), rng, zoom=(0.08, 0.9))
    image, factor = smooth(width, height), view.reduction
    full = view.resample(image).astype(int)
    reduced = view.resample(averaged(image, factor), reduction=factor).astype(int)
    assert reduced.shape == full.shape
    # Blocks of the two are cut at other places, so their means round differently; a shift would be far more.
    assert not full.size or np.abs(full - reduced).mean() < 0.5 + 0.1 * factor * 255 / min(width, height)


@pytest.mark.parametrize(
    ("size", "reduction"), [(400, 1), (201, 1), (200, 2), (100, 4), (60, 4), (50, 8), (10, 8)]
)
def test_the_reduction_is_the_largest_that_loses_nothing(size: int, reduction: int) -> None:
    assert (
        View.identity(400, 400).then(scale=(size / 400, size / 400), size=(size, size)).reduction == reduction
    )


def test_the_axis_that_is_reduced_least_decides() -> None:
    assert View.identity(400, 400).then(scale=(0.1, 0.6), size=(40, 240)).reduction == 1
