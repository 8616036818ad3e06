"""Evaluates generated images by the Fréchet distance of their features to real ones (Heusel et al. 2017)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxcrew.evaluate.evaluation import diverged

_Array = npt.NDArray[np.float64]


def frechet_distance(a: _Array, b: _Array) -> float:
    """Return the squared distance |μa - μb|² + tr(A + B - 2 (A½ B A½)½) of the Gaussians with the means and
    covariances of two sets of feature vectors, (N, D) and (M, D).

    Fewer vectors than dimensions are enough, but the distance grows as they become fewer: compare only
    distances of equally many. The last trace is the sum of the singular values of A½ B½: their squares are
    the eigenvalues of A½ B A½, but small ones keep their digits, so that the distance of equal sets is 0.
    """
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise diverged("the features of images are not finite")
    difference, first, second = a.mean(axis=0) - b.mean(axis=0), _covariance(a), _covariance(b)
    root_trace = np.linalg.svd(_root(first) @ _root(second), compute_uv=False).sum()
    covariance_term = np.trace(first) + np.trace(second) - 2 * root_trace
    # Rounding can take the term of equal covariances below 0.
    return float(difference @ difference + max(0.0, covariance_term))


def _covariance(features: _Array) -> _Array:
    """Return the unbiased estimate (D, D); zeros for a single vector."""
    deviations = features - features.mean(axis=0)
    covariance: _Array = deviations.T @ deviations / max(1, len(features) - 1)
    return covariance


def _root(covariance: _Array) -> _Array:
    """Return the symmetric root. Eigenvalues that are 0 but for rounding become 0: their roots would not."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    rounding = np.finfo(np.float64).eps * len(values) * max(0.0, float(values.max(initial=0.0)))
    root: _Array = (vectors * np.sqrt(np.where(values > rounding, values, 0.0))) @ vectors.T
    return root
