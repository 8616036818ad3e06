"""Linear SVMs, one for each class, with hard-negative mining (R-CNN, Girshick et al. 2014, section 2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boxcrew.core.errors import UsageError
from boxcrew.core.types import Floats, Ints

NORM = 20.0  # that features are scaled to in the mean: the other numbers suit it
NEGATIVE_IOU = 0.3  # regions that overlap every object of a class by less are negative for it
_PENALTY, _POSITIVE_WEIGHT, _BIAS_FEATURE = 1e-3, 2, 10.0
_JOINS, _LEAVES = -1.0001, -1.2  # scores from which a negative is hard, and below which it is easy again
_NEVER = -10.0  # bias of a class without objects
_REFIT_AFTER = 2000  # hard negatives
_TOLERANCE = 0.1  # of the dual's gradient: the default of LIBLINEAR, which the authors used

Weights = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class RegionLabels:
    """The labels of the regions of one image, which are proposals and objects."""

    overlaps: Floats  # (N, C) the greatest IoU with an object of each class
    classes: Ints  # (N,) the class of an object, -1 for a proposal


@dataclass(frozen=True, kw_only=True, eq=False)
class RegionRows(RegionLabels):
    """The regions of one image with their features."""

    features: Floats  # (N, D)


def mean_norm_scale(images: Sequence[RegionRows]) -> float:
    """Return the factor that brings the mean norm of all features to `NORM`."""
    norms = [np.linalg.norm(image.features.astype(np.float64), axis=1) for image in images]
    return NORM / max(float(np.concatenate(norms).mean()), 1e-12)


def solve_svms(images: Sequence[RegionRows], num_classes: int) -> tuple[Weights, Weights]:
    """Return weights (C, D) and biases (C,) of an SVM for each class; `images` is read once for each class.

    Objects of the class are positive, and proposals and other objects that overlap none of these much are
    negative. A class without objects is never found.
    """
    require_scikit_learn()
    scale = mean_norm_scale(images)
    weights = np.zeros((num_classes, images[0].features.shape[1]))
    biases = np.full(num_classes, _NEVER)
    for number in range(num_classes):
        solved = _mine(images, number, scale)
        if solved is not None:
            weights[number], biases[number] = solved
    return weights * scale, biases


def _mine(images: Sequence[RegionRows], number: int, scale: float) -> tuple[Weights, float] | None:
    """Return the SVM of one class for scaled features; None if there is nothing to separate."""
    scale32 = np.float32(scale)
    positive = np.concatenate([image.features[image.classes == number] for image in images]) * scale32
    if not len(positive):
        return None
    hard: list[Floats] = []  # the first entry is what earlier fits have left
    solved: tuple[Weights, float] | None = None
    for image in images:
        negative = image.features[image.overlaps[:, number] < NEGATIVE_IOU] * scale32
        if solved is not None:
            negative = negative[negative @ solved[0] + solved[1] > _JOINS]
        hard.append(negative)
        if sum(map(len, hard[1:])) > _REFIT_AFTER or (solved is None and len(negative)):
            solved, left = _fit_and_prune(positive, np.concatenate(hard))
            hard = [left]
    negatives = np.concatenate(hard)
    return _fit_and_prune(positive, negatives)[0] if len(negatives) else solved


def _fit_and_prune(positive: Floats, hard: Floats) -> tuple[tuple[Weights, float], Floats]:
    """Return the SVM of these examples, and the negatives that are still hard for it."""
    weight, bias = fit_svm(positive, hard)
    return (weight, bias), hard[hard @ weight + bias >= _LEAVES]


def fit_svm(positive: Floats, negative: Floats) -> tuple[Weights, float]:
    """Return weight (D,) and bias of the SVM that separates examples (N, D) with a hinge loss."""
    from sklearn.svm import LinearSVC

    svm = LinearSVC(
        loss="hinge",
        dual=True,
        C=_PENALTY,
        class_weight={1: _POSITIVE_WEIGHT},
        intercept_scaling=_BIAS_FEATURE,
        tol=_TOLERANCE,
        max_iter=10_000,
        random_state=0,
    )
    labels = np.concatenate((np.ones(len(positive)), np.zeros(len(negative))))
    svm.fit(np.concatenate((positive, negative)).astype(np.float64), labels)
    return svm.coef_[0], float(svm.intercept_[0])


def require_scikit_learn() -> None:
    """Raise `UsageError` if scikit-learn, which fits the SVMs, is not installed."""
    try:
        import sklearn.svm  # noqa: F401
    except ImportError:
        raise UsageError(
            "this detector needs scikit-learn for its SVMs", advice="pip install 'boxcrew[classic]'"
        ) from None
