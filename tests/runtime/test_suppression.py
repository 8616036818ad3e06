"""Suppression with arrays keeps what that of torch keeps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from boxcrew.nets.static import nms_top_k, score_ranks
from boxcrew.runtime.choice import below_rank
from boxcrew.runtime.suppression import suppress


def candidates(seed: int, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    num = 300 if kind == "many" else 60
    corner = rng.uniform(0, 80, (num, 2))
    boxes = np.concatenate((corner, corner + rng.uniform(2, 60, (num, 2))), axis=1).astype(np.float32)
    scores = rng.uniform(0, 1, num).astype(np.float32)
    if kind == "ties":
        scores = np.round(scores, 1)
    elif kind == "whole":  # overlaps of exactly a half, and empty boxes
        boxes = (np.round(boxes / 16) * 16).astype(np.float32)
    elif kind == "same":
        boxes[:] = boxes[0]
    return boxes, scores, rng.integers(0, 3, num)


@pytest.mark.parametrize("kind", ["random", "many", "ties", "whole", "same"])
@pytest.mark.parametrize(("iou", "most"), [(0.5, 100), (0.3, 7), (0.9, 100)])
def test_it_keeps_what_torch_keeps(kind: str, iou: float, most: int) -> None:
    for seed in range(5):
        boxes, scores, labels = candidates(seed, kind)
        kept = suppress(boxes, scores, labels, score_threshold=0.2, iou=iou, most=most)
        own, likely, classes = (torch.from_numpy(values)[None] for values in (boxes, scores, labels))
        chosen = nms_top_k(own, score_ranks(likely), classes, likely > 0.2, num_groups=3, iou=iou, count=most)
        index = chosen.index[0][chosen.valid[0]].numpy()
        index = index[np.argsort(-scores[index], kind="stable")]
        assert np.array_equal(kept.scores, scores[index])
        assert np.array_equal(kept.boxes, boxes[index])
        assert np.array_equal(kept.labels, labels[index])


@pytest.mark.parametrize("kind", ["random", "many", "ties", "whole", "same"])
@pytest.mark.parametrize("score", [0.0, 0.25, 0.5, 0.6, 0.9, 1.0])
def test_candidates_that_nobody_asks_for_change_nothing(kind: str, score: float) -> None:
    for seed in range(5):
        boxes, scores, labels = candidates(seed, kind)
        near = np.random.default_rng(seed).integers(0, len(scores), len(scores) // 2)
        scores[near] = score + np.linspace(-2e-4, 2e-4, len(near), dtype=np.float32)  # some of one rank
        all_of, few = (
            suppress(boxes, scores, labels, score_threshold=threshold, iou=0.5, most=50).above(score)
            for threshold in (0.01, max(0.01, below_rank(score)))
        )
        assert np.array_equal(few.scores, all_of.scores)
        assert np.array_equal(few.boxes, all_of.boxes)
        assert np.array_equal(few.labels, all_of.labels)


def test_of_boxes_with_nearly_the_same_score_the_first_is_kept() -> None:
    boxes = np.array([[0, 0, 10, 10], [1, 0, 11, 10]], dtype=np.float32)
    for nearly in (0.5 - 1e-6, 0.5, 0.5 + 1e-6):
        scores = np.array([0.5, nearly], dtype=np.float32)
        kept = suppress(boxes, scores, np.zeros(2, np.int64), score_threshold=0.2, iou=0.5, most=10)
        assert np.array_equal(kept.boxes, boxes[:1])


def test_nothing_likely_leaves_nothing() -> None:
    boxes, scores, labels = candidates(0, "random")
    kept = suppress(boxes, scores, labels, score_threshold=1.0, iou=0.5, most=10)
    assert len(kept) == 0
    assert kept.boxes.shape == (0, 4)
