"""The real data sets and weights that stand beside the checkout, or the sets in BOXCREW_SHARED_DATA and the
weights beside them; benchmarks do without.
"""

from __future__ import annotations

import os
from pathlib import Path


def real_data(name: str) -> Path | None:
    """The folder of a set; None where it is absent."""
    folder = _sets() / name
    return folder if folder.is_dir() else None


def real_weights(name: str) -> Path | None:
    """A weight file; None where it is absent."""
    file = _sets().parent / "weights" / name
    return file if file.is_file() else None


def _sets() -> Path:
    beside = Path(__file__).parents[2] / "shared" / "data"
    return Path(os.environ.get("BOXCREW_SHARED_DATA", beside))
