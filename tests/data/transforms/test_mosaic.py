"""Several images in one sample: pixels and boxes stay together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from boxcrew.core.errors import UsageError
from boxcrew.core.input_size import Extent, InputSize
from boxcrew.core.types import Image, Sample, Target
from boxcrew.data.loading.order import sample_rng
from boxcrew.data.transforms.mosaic import Mixing, MosaicCell, blend, join_tiles, mosaic_places, paste_objects
from boxcrew.data.transforms.pipeline import Pipeline, TransformsConfig, train_pipeline

RED, GREEN, BLUE = range(3)


def scene(width: int, height: int, channel: int, box: tuple[int, int, int, int]) -> tuple[Image, Target]:
    """A black image with one object, which alone has light in its channel."""
    image = np.zeros((height, width, 3), dtype=np.uint8)
    image[box[1] : box[3], box[0] : box[2], channel] = 255
    return image, Target.of([box], [channel])


def seen_box(image: Image, channel: int) -> list[int]:
    """The box around all pixels with light in a channel."""
    light = image[..., channel] > 127
    rows, columns = np.flatnonzero(light.any(axis=1)), np.flatnonzero(light.any(axis=0))
    return [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]


def tile_of(pipeline: Pipeline, extent: Extent, source: tuple[Image, Target], seed: int) -> Sample:
    image, target, _ = pipeline.for_tile(extent)(*source, sample_rng(seed, 0, 0))
    return Sample(image=image, target=target, key=str(seed))


@pytest.mark.parametrize("size", [InputSize((160,)), InputSize((96,), 160)], ids=str)
@pytest.mark.parametrize("resize", ["squash", "letterbox"])
def test_the_objects_of_a_mosaic_are_where_its_boxes_say(resize: Any, size: InputSize) -> None:
    config = TransformsConfig(expand=1.5, crop=False, jitter=0.2, color=0, resize=resize, fill=(0, 0, 0))
    extent = (320, 240)
    pipeline = train_pipeline(config, size).for_step(0, [extent])
    assert pipeline.canvas is not None
    num_seen = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        places = mosaic_places(pipeline.canvas, rng)
        tiles = []
        for number, place in enumerate(places):
            source = scene(*extent, number % 3, (90, 60, 230, 180))
            tiles.append(tile_of(pipeline, place.extent, source, 4 * seed + number))
        mosaic = join_tiles(tiles, places, pipeline.canvas)
        assert mosaic.image.shape[1::-1] == pipeline.canvas
        for box, label in zip(mosaic.target.boxes, mosaic.target.labels.tolist(), strict=True):
            if label != RED:  # red is in two of the images
                assert np.abs(seen_box(mosaic.image, label) - box).max() <= 1.01
                num_seen += 1
    assert num_seen > 40


def test_a_tile_shows_images_at_many_sizes_and_drops_objects_whose_center_is_cut_off() -> None:
    config = TransformsConfig(expand=1, crop=False, flip=0, color=0, fill=(0, 0, 0))
    pipeline = train_pipeline(config, InputSize((100,))).for_step(0, [(200, 200)])
    source = scene(200, 200, GREEN, (80, 80, 120, 120))
    widths, num_cut = [], 0
    for seed in range(300):
        tile = tile_of(pipeline, (50, 50), source, seed)
        if not len(tile.target):
            num_cut += 1
            continue
        x0, y0, x1, y1 = tile.target.boxes[0]
        if min(x0, y0) > 0 and max(x1, y1) < 50:
            widths.append(x1 - x0)
    assert num_cut > 10
    assert 9 < min(widths) < 12, "20 pixels of the input, halved"
    assert 27 < max(widths) < 31
    assert np.median(widths) < 20


def test_the_places_of_a_mosaic_cover_its_canvas_once() -> None:
    centers = set()
    for seed in range(50):
        covered = np.zeros((96, 160), dtype=int)
        places = mosaic_places((160, 96), np.random.default_rng(seed))
        for place in places:
            covered[place.top : place.bottom, place.left : place.right] += 1
        assert (covered == 1).all()
        centers.add((places[0].right, places[0].bottom))
        assert 40 <= places[0].right <= 120
        assert 24 <= places[0].bottom <= 72
    assert len(centers) > 45


def sample(level: int, target: Target, **extra: Any) -> Sample:
    return Sample(image=np.full((8, 8, 3), level, dtype=np.uint8), target=target, key=str(level), extra=extra)


def test_flags_and_regions_move_with_the_tile() -> None:
    regions, valid = np.array([[1, 1, 4, 4], [0, 0, 0, 0]], dtype=np.float32), np.array([True, False])
    extra = {"regions": regions, "regions_valid": valid}
    target = Target.of([[1, 2, 3, 4], [0, 0, 8, 8]], [2, 5], [True, False], [False, True])
    places = (MosaicCell(left=0, top=0, right=8, bottom=8), MosaicCell(left=8, top=0, right=16, bottom=8))
    joined = join_tiles([sample(1, target, **extra), sample(2, target, **extra)], places, (16, 8))
    assert joined.key == "1"
    assert joined.target.boxes.tolist() == [[1, 2, 3, 4], [0, 0, 8, 8], [9, 2, 11, 4], [8, 0, 16, 8]]
    assert joined.target.labels.tolist() == [2, 5, 2, 5]
    assert joined.target.difficult.tolist() == [True, False, True, False]
    assert joined.target.crowd.tolist() == [False, True, False, True]
    assert joined.extra["regions"].tolist() == [[1, 1, 4, 4], [0] * 4, [9, 1, 12, 4], [0] * 4]
    assert joined.extra["regions_valid"].tolist() == [True, False, True, False]
    assert (joined.image[:, :8] == 1).all()
    assert (joined.image[:, 8:] == 2).all()


def test_a_blend_is_a_mean_near_the_middle_with_the_objects_of_both() -> None:
    first, second = sample(0, Target.of([[1, 2, 3, 4]], [0])), sample(200, Target.of([[0, 0, 8, 8]], [1]))
    levels = []
    for seed in range(400):
        mixed = blend(first, second, np.random.default_rng(seed))
        assert mixed.key == "0"
        assert mixed.target.boxes.tolist() == [[1, 2, 3, 4], [0, 0, 8, 8]]
        assert mixed.target.labels.tolist() == [0, 1]
        assert (mixed.image == mixed.image[0, 0, 0]).all()
        levels.append(int(mixed.image[0, 0, 0]) / 200)
    assert abs(np.mean(levels) - 0.5) < 0.03
    assert abs(np.std(levels) - 0.121) < 0.02, "that of Beta(8, 8)"


def test_settings_say_what_is_mixed() -> None:
    assert TransformsConfig().mixing is None
    assert TransformsConfig(mosaic=0.3, mixup=0.1).mixing == Mixing(mosaic=0.3, mixup=0.1)
    counts = {(0.5, 0.0): 4, (0.0, 0.5): 2, (0.5, 0.5): 8}
    for (mosaic, mixup), num in counts.items():
        assert Mixing(mosaic=mosaic, mixup=mixup).num_images == num
    for wrong in ({"mosaic": 1.5}, {"mixup": -0.1}, {"mix_until": 2}):
        with pytest.raises(UsageError, match="transforms"):
            TransformsConfig.of(wrong)


def test_objects_are_pasted_where_they_hide_nothing() -> None:
    ground: Image = np.full((60, 80, 3), 7, dtype=np.uint8)
    sample = Sample(image=ground, target=Target.of([[10, 10, 40, 50]], [0]), key="a")
    shown = ground.copy()
    shown[5:25, 30:50] = 200
    other = Sample(image=shown, target=Target.of([[30, 5, 50, 25]], [2]), key="b")
    pasted = 0
    for seed in range(30):
        mixed = paste_objects(sample, other, np.random.default_rng(seed))
        assert mixed.key == "a"
        assert mixed.target.labels.tolist() == [0, 2][: len(mixed.target)]
        assert (sample.image == 7).all()  # not changed in place
        for left, top, right, bottom in mixed.target.boxes[1:].astype(int).tolist():
            pasted += 1
            assert (right - left, bottom - top) == (20, 20)
            assert (mixed.image[top:bottom, left:right] == 200).all()
            assert (mixed.image == 200).all(axis=2).sum() == 400
            covered = max(0, min(right, 40) - max(left, 10)) * max(0, min(bottom, 50) - max(top, 10))
            assert covered <= 0.1 * 30 * 40
    assert pasted > 10


def test_objects_that_cannot_be_cut_out_alone_are_not_pasted() -> None:
    ground: Image = np.zeros((60, 80, 3), dtype=np.uint8)
    sample = Sample(image=ground, target=Target.of([], []), key="a")
    one_inside = Target.of([[0, 0, 40, 40], [10, 10, 30, 30], [45, 45, 55, 55]], [0, 1, 2])
    crowd = Target.of([[0, 0, 40, 40]], [0], crowd=[True])
    thin = Target.of([[0, 0, 40, 3]], [0])
    for target, labels in ((one_inside, [2]), (crowd, []), (thin, [])):
        other = Sample(image=ground, target=target, key="b")
        mixed = paste_objects(sample, other, np.random.default_rng(0))
        assert mixed.target.labels.tolist() == labels
