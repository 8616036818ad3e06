"""Evaluates generated images by the Fréchet distance of their features to real ones (Heusel et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from boxcrew.evaluate.evaluation import diverged

_Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Mean and covariance of feature vectors.

    The sum of several, in any order, has the moments of all vectors together, to float64's precision.
    """

    count: int
    mean: _Array  # (D,)
    scatter: _Array  # (D, D) sum over the vectors of (x - mean)(x - mean)ᵀ

    @classmethod
    def of(cls, features: npt.NDArray[np.floating[Any]]) -> Self:
        """Return the moments of the rows of (N, D); N may be 0."""
        wide = features.astype(np.float64)
        mean = wide.mean(axis=0) if len(wide) else np.zeros(wide.shape[1])
        deviations = wide - mean
        return cls(count=len(wide), mean=mean, scatter=deviations.T @ deviations)

    def __add__(self, other: Moments) -> Moments:
        # Chan, Golub and LeVeque 1983: no difference of large sums, so no digits are lost.
        count = self.count + other.count
        if not count:
            return self
        difference = other.mean - self.mean
        mean = self.mean + difference * (other.count / count)
        between = np.outer(difference, difference) * (self.count * other.count / count)
        return Moments(count=count, mean=mean, scatter=self.scatter + other.scatter + between)

    @property
    def covariance(self) -> _Array:
        """The unbiased estimate (D, D); zeros if there are fewer than two vectors."""
        return self.scatter / max(1, self.count - 1)


def frechet_distance(a: Moments, b: Moments) -> float:
    """Return the squared distance |μa - μb|² + tr(A + B - 2 (A½ B A½)½) of the Gaussians with these moments.

    Fewer vectors than dimensions are enough, but the distance grows as they become fewer: compare only
    distances of equally many. The last trace is the sum of the singular values of A½ B½: their squares are
    the eigenvalues of A½ B A½, but small ones keep their digits, so that the distance of equal moments is 0.
    """
    assert min(a.count, b.count) > 0, (a.count, b.count)
    if not all(np.isfinite(array).all() for array in (a.mean, a.scatter, b.mean, b.scatter)):
        raise diverged("the features of images are not finite")
    difference = a.mean - b.mean
    root_trace = np.linalg.svd(_root(a.covariance) @ _root(b.covariance), compute_uv=False).sum()
    covariance_term = np.trace(a.covariance) + np.trace(b.covariance) - 2 * root_trace
    # Rounding can take the term of equal covariances below 0.
    return float(difference @ difference + max(0.0, covariance_term))


def _root(covariance: _Array) -> _Array:
    """Return the symmetric root. Eigenvalues that are 0 but for rounding become 0: their roots would not."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    rounding = np.finfo(np.float64).eps * len(values) * max(0.0, float(values.max(initial=0.0)))
    root: _Array = (vectors * np.sqrt(np.where(values > rounding, values, 0.0))) @ vectors.T
    return root
