"""Ridge regression of boxes for each class (R-CNN, Girshick et al. 2014, appendix C)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Floats, Ints
from boxcrew.nets.linear_svm import NORM

Weights = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class BoxExamples:
    """Regions near objects, and the way to the objects."""

    features: Floats  # (N, P)
    offsets: Floats  # (N, 4) dx, dy, dw, dh from each region to its object
    classes: Ints  # (N,) of the objects


def solve_boxes(examples: BoxExamples, num_classes: int, *, ridge: float) -> tuple[Weights, Weights]:
    """Return weights (C, 4, P) and biases (C, 4) that predict offsets from features. Classes without examples
    get zeros: their boxes stay where they are.
    """
    num_features = examples.features.shape[1]
    weights, biases = np.zeros((num_classes, 4, num_features)), np.zeros((num_classes, 4))
    norms = np.linalg.norm(examples.features.astype(np.float64), axis=1)
    scale = NORM / max(float(norms.mean()) if len(norms) else 0.0, 1e-12)
    for number in range(num_classes):
        members = examples.classes == number
        if members.any():
            features = examples.features[members].astype(np.float64) * scale
            weight, biases[number] = _solve_class(features, examples.offsets[members], ridge)
            weights[number] = weight * scale
    return weights, biases


def _solve_class(features: Weights, offsets: Floats, ridge: float) -> tuple[Weights, Weights]:
    """Return weights (4, P) and biases (4,). Targets are centered; the bias is a feature of 1, and so
    regularized too, as the authors' code has it. That code also decorrelates the targets, and turns the
    solution back: as one ridge holds for all of them, this changes nothing.
    """
    mean = offsets.astype(np.float64).mean(axis=0)
    solved = ridge_solve(np.column_stack((features, np.ones(len(features)))), offsets - mean, ridge)
    return solved[:-1].T, solved[-1] + mean


def ridge_solve(x: Weights, y: Weights, ridge: float) -> Weights:
    """Return the b (P, T) that minimizes |x b - y|^2 + ridge |b|^2, by the smaller of two systems."""
    num, width = x.shape
    if num < width:
        dual: Weights = x.T @ np.linalg.solve(x @ x.T + ridge * np.eye(num), y)
        return dual
    primal: Weights = np.linalg.solve(x.T @ x + ridge * np.eye(width), x.T @ y)
    return primal
