"""How far made pictures are from real ones: the Fréchet distance of their features (Heusel et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from boxcrew.core.errors import ModelError

_Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Mean and covariance of feature vectors. Those of several batches, or places, are added up; in whatever
    order, the result is that of all vectors together, to float64's precision.
    """

    count: int
    mean: _Array  # (D,)
    scatter: _Array  # (D, D) sum over the vectors of (x - mean)(x - mean)ᵀ

    @classmethod
    def of(cls, features: npt.NDArray[np.floating[Any]]) -> Self:
        """Of the rows of (N, D); N may be 0."""
        wide = features.astype(np.float64)
        mean = wide.mean(axis=0) if len(wide) else np.zeros(wide.shape[1])
        away = wide - mean
        return cls(count=len(wide), mean=mean, scatter=away.T @ away)

    def __add__(self, other: Moments) -> Moments:
        # Chan, Golub and LeVeque 1983: no difference of large sums, so no digits are lost.
        count = self.count + other.count
        if not count:
            return self
        apart = other.mean - self.mean
        return Moments(
            count=count,
            mean=self.mean + apart * (other.count / count),
            scatter=self.scatter
            + other.scatter
            + np.outer(apart, apart) * (self.count * other.count / count),
        )

    @property
    def covariance(self) -> _Array:
        """(D, D), the unbiased estimate; zeros where there are fewer than two vectors."""
        return self.scatter / max(1, self.count - 1)


def frechet_distance(a: Moments, b: Moments) -> float:
    """Squared, as is usual: |μa - μb|² + tr(A + B - 2 (A½ B A½)½) of the Gaussians with these moments.

    Fewer vectors than dimensions are enough, but the fewer there are, the greater it comes out: compare
    only distances of equally many. The last trace is the sum of the singular values of A½ B½: the squares of
    these are the eigenvalues of A½ B A½, but small ones keep their digits, so that equal moments are at 0.
    """
    assert min(a.count, b.count) > 0, (a.count, b.count)
    if not all(np.isfinite(one).all() for one in (a.mean, a.scatter, b.mean, b.scatter)):
        raise ModelError(
            "features of pictures are not numbers",
            advice="training has diverged: a lower optim.rate=, or optim.clip=",
        )
    apart = a.mean - b.mean
    shared = np.linalg.svd(_root(a.covariance) @ _root(b.covariance), compute_uv=False).sum()
    spread = np.trace(a.covariance) + np.trace(b.covariance) - 2 * shared
    # Rounding takes the spread of equal covariances below 0.
    return float(apart @ apart + max(0.0, spread))


def _root(covariance: _Array) -> _Array:
    """The symmetric root. Eigenvalues that are 0 but for rounding are made 0: their roots would matter."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    noise = np.finfo(np.float64).eps * len(values) * max(0.0, float(values.max(initial=0.0)))
    root: _Array = (vectors * np.sqrt(np.where(values > noise, values, 0.0))) @ vectors.T
    return root
