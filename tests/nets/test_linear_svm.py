"""SVMs with mined negatives, and ridge regression of boxes, against direct solutions."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from boxcrew.core.errors import UsageError
from boxcrew.nets import linear_svm
from boxcrew.nets.box_ridge import BoxExamples, ridge_solve, solve_boxes
from boxcrew.nets.linear_svm import NORM, RegionRows, fit_svm, mean_norm_scale, solve_svms

D = 12


def make_images(num: int = 30, regions: int = 40, *, seed: int = 0) -> list[RegionRows]:
    """Images with one object of class 0 or 1, whose features lie around (±2, 0, 0, …)."""
    rng = np.random.default_rng(seed)
    images = []
    for number in range(num):
        kind = number % 2
        features = rng.normal(size=(regions + 1, D)).astype(np.float32)
        features[-1, 0] += 6 - 12 * kind
        overlaps = np.zeros((regions + 1, 3), dtype=np.float32)
        overlaps[-1, kind] = 1
        overlaps[0, kind] = 0.4  # neither positive nor negative for its class
        features[0, 0] += 6 - 12 * kind
        classes = np.full(regions + 1, -1)
        classes[-1] = kind
        images.append(RegionRows(features=features, overlaps=overlaps, classes=classes))
    return images


def test_mined_negatives_give_the_svm_of_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negatives that were never hard, or are easy again, have no part in the solution."""
    monkeypatch.setattr(linear_svm, "_TOLERANCE", 1e-9)
    images = make_images()
    weights, biases = solve_svms(images, 3)
    scale = mean_norm_scale(images)
    positive = np.concatenate([each.features[each.classes == 0] for each in images]) * np.float32(scale)
    negative = np.concatenate(
        [each.features[each.overlaps[:, 0] < 0.3] for each in images]  # objects of other classes too
    ) * np.float32(scale)
    weight, bias = fit_svm(positive, negative)
    every = np.concatenate([each.features for each in images])
    mined, direct = every @ weights[0] + biases[0], every * scale @ weight + bias
    np.testing.assert_allclose(mined, direct, atol=1e-4)
    scores = np.concatenate([each.features[each.classes == 0] for each in images]) @ weights[0] + biases[0]
    assert (scores > 0).all()


def test_features_are_scaled_by_their_mean_norm() -> None:
    images = make_images()
    norms = np.concatenate([np.linalg.norm(each.features, axis=1) for each in images])
    assert mean_norm_scale(images) == pytest.approx(NORM / norms.mean())


def test_it_is_deterministic_and_a_class_without_objects_is_never_found() -> None:
    first, second = (solve_svms(make_images(), 3) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not first[0][2].any()
    assert first[1][2] == -10


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.svm", None)
    with pytest.raises(UsageError, match="scikit-learn") as raised:
        solve_svms(make_images(2), 3)
    assert raised.value.advice == "pip install 'boxcrew[classic]'"


@pytest.mark.parametrize("num", [5, 60])
def test_ridge_equals_scikit_learn(num: int) -> None:
    """By the dual system, if there are fewer rows than columns, and by the primal one."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(num, D)), rng.normal(size=(num, 4))
    wanted = Ridge(alpha=3.0, fit_intercept=False).fit(x, y).coef_.T
    np.testing.assert_allclose(ridge_solve(x, y, 3.0), wanted, atol=1e-10)


def test_boxes_learn_the_way_of_their_class() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, D)).astype(np.float32)
    classes = rng.integers(0, 2, size=400)
    way = rng.normal(size=(2, D, 4)) * 0.05
    offsets = np.einsum("nd,ndk->nk", features, way[classes]).astype(np.float32) + 0.1
    examples = BoxExamples(features=features, offsets=offsets, classes=classes)
    weights, biases = solve_boxes(examples, 3, ridge=1e-6)
    for number in range(2):
        np.testing.assert_allclose(weights[number].T, way[number], atol=1e-4)
        np.testing.assert_allclose(biases[number], 0.1, atol=1e-4)
    assert not weights[2].any()
    assert not biases[2].any()


def test_a_strong_ridge_keeps_the_mean_offset() -> None:
    features = np.ones((10, D), dtype=np.float32)
    offsets = np.tile(np.array([0.1, -0.2, 0.3, 0.0], dtype=np.float32), (10, 1))
    examples = BoxExamples(features=features, offsets=offsets, classes=np.zeros(10, dtype=np.int64))
    weights, biases = solve_boxes(examples, 1, ridge=1e9)
    np.testing.assert_allclose(features @ weights[0].T + biases[0], offsets, atol=1e-4)
