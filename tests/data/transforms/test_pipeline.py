from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxcrew.core.errors import UsageError
from boxcrew.core.input_size import InputSize
from boxcrew.core.types import Image, Target
from boxcrew.data.loading.order import sample_rng
from boxcrew.data.transforms.pipeline import TransformsConfig, eval_pipeline, train_pipeline


def example(seed: int) -> tuple[Image, Target]:
    """An image with a few filled rectangles, in colors of their own, and their boxes."""
    rng = np.random.default_rng(seed)
    width, height = (int(side) for side in rng.integers(60, 300, 2))
    image = np.full((height, width, 3), 30, dtype=np.uint8)
    boxes = []
    for _ in range(int(rng.integers(0, 4))):
        x, y = int(rng.integers(0, width - 30)), int(rng.integers(0, height - 30))
        box = [x, y, x + int(rng.integers(10, 30)), y + int(rng.integers(10, 30))]
        image[box[1] : box[3], box[0] : box[2]] = rng.integers(60, 256, 3)
        boxes.append(box)
    return image, Target.of(boxes, range(len(boxes)))


@pytest.mark.parametrize("resize", ["squash", "letterbox"])
@given(seed=st.integers(0, 2**32))
def test_training_gives_usable_targets_and_changes_nothing(resize: Any, seed: int) -> None:
    image, target = example(seed)
    pixels, boxes = image.copy(), target.boxes.copy()
    pipeline = train_pipeline(TransformsConfig(resize=resize), InputSize((96,)))
    drawn, moved, view = pipeline(image, target, sample_rng(seed, 0, 0))
    assert drawn.shape == (96, 96, 3)
    assert drawn.dtype == np.uint8
    assert drawn.flags.c_contiguous
    assert (view.width, view.height) == (96, 96)
    assert (moved.boxes >= 0).all()
    assert (moved.boxes <= 96).all()
    assert (moved.boxes[:, 2:] - moved.boxes[:, :2] >= 1).all()
    assert set(moved.labels.tolist()) <= set(target.labels.tolist())
    assert (image == pixels).all()
    assert (target.boxes == boxes).all()
    assert not np.shares_memory(moved.boxes, target.boxes)
    assert not np.shares_memory(drawn, image)


def test_the_same_numbers_give_the_same_sample_and_others_another() -> None:
    _, target = example(5)
    image = np.random.default_rng(5).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    pipeline = train_pipeline(TransformsConfig(), InputSize((96,)))
    first, same = (pipeline(image, target, sample_rng(1, 2, 3))[0] for _ in range(2))
    assert (first == same).all()
    for place in ((0, 2, 3), (1, 0, 3), (1, 2, 0)):
        assert (pipeline(image, target, sample_rng(*place))[0] != first).any()


@pytest.mark.parametrize("jitter", [0, 0.5])
def test_objects_are_where_the_boxes_say_after_everything(jitter: float) -> None:
    """The object is the only bright thing, so its pixels can be found again in what is drawn."""
    pipeline = train_pipeline(TransformsConfig(jitter=jitter, color=0, fill=(0, 0, 0)), InputSize((200,)))
    image = np.zeros((300, 400, 3), dtype=np.uint8)
    image[80:200, 100:260] = 255
    target = Target.of([[100, 80, 260, 200]], [0])
    num_found = 0
    for seed in range(150):
        drawn, moved, _ = pipeline(image, target, sample_rng(seed, 0, 0))
        for box in moved.boxes:
            rows = np.flatnonzero((drawn[..., 0] > 127).any(axis=1))
            columns = np.flatnonzero((drawn[..., 0] > 127).any(axis=0))
            seen = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1])
            assert np.abs(seen - box).max() <= 1
            num_found += 1
    assert num_found > 120


def test_color_leaves_the_fill_alone() -> None:
    config = TransformsConfig(resize="letterbox", expand=1, crop=False, flip=0, color=1, fill=(9, 8, 7))
    pipeline = train_pipeline(config, InputSize((100,)))
    image = np.full((50, 100, 3), 120, dtype=np.uint8)
    inner = set()
    for seed in range(30):
        drawn, _, _ = pipeline(image, Target.of([], []), sample_rng(seed, 0, 0))
        assert (drawn[:25] == (9, 8, 7)).all()
        assert (drawn[75:] == (9, 8, 7)).all()
        inner.add(int(drawn[50, 50, 0]))
    assert len(inner) > 5


def test_everything_off_is_the_evaluation() -> None:
    off = TransformsConfig(expand=1, crop=False, flip=0, color=0)
    assert train_pipeline(off, InputSize((96,))) == eval_pipeline(TransformsConfig(), InputSize((96,)))


@pytest.mark.parametrize("resize", ["squash", "letterbox"])
def test_evaluation_can_be_undone(resize: Any) -> None:
    image, target = example(9)
    drawn, moved, view = eval_pipeline(TransformsConfig(resize=resize), InputSize((300,)))(
        image, target, sample_rng(0, 0, 0)
    )
    assert len(moved) == len(target) > 0
    assert np.abs(view.inverse_boxes(moved.boxes) - target.boxes).max() < 1e-3
    assert drawn.shape == (300, 300, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"resize": "crop"},
        {"expand": 0.5},
        {"jitter": -0.1},
        {"jitter": 2},
        {"flip": 1.5},
        {"color": -1},
        {"fill": (0, 0, 256)},
        {"flp": 1},
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"transforms.{next(iter(wrong))}"):
        TransformsConfig.of(wrong)


def test_a_short_side_keeps_the_proportions_and_stands_in_the_corner() -> None:
    image = np.full((60, 100, 3), 200, dtype=np.uint8)
    target = Target.of([[10, 20, 50, 60]], [0])
    pipeline = eval_pipeline(TransformsConfig(fill=(1, 2, 3)), InputSize((96, 120), 160))
    drawn, moved, view = pipeline(image, target, sample_rng(0, 0, 0))
    assert drawn.shape == (96, 160, 3)  # the limit decides: 160 x 96
    assert moved.boxes.tolist() == [[16, 32, 80, 96]]
    assert pipeline.scale((100, 60)) == (view.x.scale, view.y.scale) == (1.6, 1.6)
    larger = pipeline.for_step(0, [(100, 60), (60, 100)])
    drawn, moved, _ = larger(image, target, sample_rng(0, 0, 0))
    assert drawn.shape == (160, 160, 3)
    assert (drawn[:96] == 200).all()
    assert (drawn[96:] == (1, 2, 3)).all()
    assert moved.boxes.tolist() == [[16, 32, 80, 96]]


@given(seed=st.integers(0, 2**32))
def test_augmentation_never_needs_more_room_than_the_image(seed: int) -> None:
    image, target = example(seed)
    pipeline = train_pipeline(TransformsConfig(jitter=0.5), InputSize((64,), 128))
    drawn, moved, view = pipeline(image, target, sample_rng(seed, 0, 0))
    extent = (image.shape[1], image.shape[0])
    assert (view.width, view.height) == pipeline.canvas_of(extent) == drawn.shape[1::-1]
    assert (moved.boxes <= [view.width, view.height] * 2).all()
    assert (moved.boxes[:, 2:] - moved.boxes[:, :2] >= 1).all()
