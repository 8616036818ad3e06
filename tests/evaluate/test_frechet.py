"""The Fréchet distance, where it is known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from boxcrew.core.errors import ModelError
from boxcrew.evaluate.frechet import frechet_distance

Array = npt.NDArray[np.float64]


def gaussian(mean: npt.ArrayLike, covariance: npt.ArrayLike) -> Array:
    """Return vectors with exactly this mean and covariance: two on each principal axis."""
    values, axes = np.linalg.eigh(np.array(covariance, float))
    ends = (axes * np.sqrt(values.clip(0) * (2 * len(values) - 1) / 2)).T
    made: Array = np.concatenate([ends, -ends]) + np.array(mean, float)
    return made


def rotation(dimensions: int, seed: int = 0) -> Array:
    random = np.random.default_rng(seed)
    orthogonal: Array = np.linalg.qr(random.normal(size=(dimensions, dimensions)))[0]
    return orthogonal


def vectors(num: int, dimensions: int, seed: int = 0) -> Array:
    random = np.random.default_rng(seed)
    mixing = random.normal(size=(dimensions, dimensions))
    made: Array = random.normal(3, 2, (num, dimensions)) @ mixing
    return made


def test_one_vector_has_no_covariance() -> None:
    assert frechet_distance(np.array([[1.0, 2.0, 3.0]]), np.array([[1.0, 2.0, 8.0]])) == pytest.approx(25)


def test_one_dimension() -> None:
    a, b = gaussian([1], [[4]]), gaussian([4], [[25]])
    assert frechet_distance(a, b) == pytest.approx(3**2 + (5 - 2) ** 2)


def test_covariances_with_the_same_axes() -> None:
    axes = rotation(6)
    first, second = np.array([1, 2, 3, 4, 5, 6.0]), np.array([6, 0.5, 0, 4, 100, 1e-9])
    a = gaussian(np.zeros(6), axes @ np.diag(first) @ axes.T)
    b = gaussian(np.full(6, 0.5), axes @ np.diag(second) @ axes.T)
    expected = 6 * 0.25 + ((np.sqrt(first) - np.sqrt(second)) ** 2).sum()
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-9)


def test_two_dimensions_with_other_axes() -> None:
    A, B = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([[1.0, -0.7], [-0.7, 3.0]])
    # Of a 2 x 2 matrix M, tr(M½) = (tr M + 2 (det M)½)½.
    shared = np.sqrt(np.trace(A @ B) + 2 * np.sqrt(np.linalg.det(A @ B)))
    expected = np.trace(A) + np.trace(B) - 2 * shared
    assert frechet_distance(gaussian([0, 0], A), gaussian([0, 0], B)) == pytest.approx(expected, rel=1e-12)


def test_against_the_root_of_the_product() -> None:
    a, b = vectors(500, 12, seed=1), vectors(400, 12, seed=2)
    A, B = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    shared = np.sqrt(np.linalg.eigvals(A @ B).astype(complex)).real.sum()
    expected = ((a.mean(axis=0) - b.mean(axis=0)) ** 2).sum() + np.trace(A) + np.trace(B) - 2 * shared
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-8)
    assert frechet_distance(a, b) == pytest.approx(frechet_distance(b, a), rel=1e-12)


@pytest.mark.parametrize("num", [3, 30, 300])
def test_equal_sets_are_at_nothing_also_with_fewer_vectors_than_dimensions(num: int) -> None:
    features = vectors(num, 60)
    scale = float(features.var(axis=0).sum())
    assert 0 <= frechet_distance(features, features) < 1e-9 * scale
    assert frechet_distance(features, features + 2) == pytest.approx(60 * 4, rel=1e-6)


def test_spaces_that_share_nothing() -> None:
    A, B = np.diag([4.0, 0, 0]), np.diag([0, 9.0, 0])
    assert frechet_distance(gaussian(np.zeros(3), A), gaussian(np.zeros(3), B)) == pytest.approx(13)


def test_axes_along_which_nothing_varies_do_no_harm() -> None:
    axes = rotation(4)
    A = axes @ np.diag([1.0, 1e-3, 0, 0]) @ axes.T
    assert frechet_distance(gaussian(np.zeros(4), A), gaussian(np.zeros(4), A)) == pytest.approx(0, abs=1e-12)
    none = gaussian(np.zeros(4), np.zeros((4, 4)))
    assert frechet_distance(gaussian(np.zeros(4), A), none) == pytest.approx(1.001)
    assert frechet_distance(none, none) == 0


def test_samples_of_one_distribution_come_together() -> None:
    distances = [frechet_distance(vectors(num, 8), vectors(2 * num, 8)[num:]) for num in (20, 20_000)]
    assert distances[1] < distances[0] / 20


def test_features_that_are_not_numbers() -> None:
    features = vectors(10, 3)
    features[2, 1] = np.nan
    with pytest.raises(ModelError, match="not finite"):
        frechet_distance(features, vectors(10, 3))
