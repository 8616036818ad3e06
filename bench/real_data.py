"""Real data sets and weights beside the checkout, or in and beside BOXCREW_SHARED_DATA, if there are any."""

from __future__ import annotations

import os
from pathlib import Path


def real_data(name: str) -> Path | None:
    """Return the folder of a data set; None if it is absent."""
    folder = _sets() / name
    return folder if folder.is_dir() else None


def real_weights(name: str) -> Path | None:
    """Return a weight file; None if it is absent."""
    file = _sets().parent / "weights" / name
    return file if file.is_file() else None


def real_table(name: str) -> Path | None:
    """Return a file with published figures; None if it is absent."""
    file = _sets().parent / name
    return file if file.is_file() else None


def _sets() -> Path:
    beside = Path(__file__).parents[2] / "shared" / "data"
    return Path(os.environ.get("BOXCREW_SHARED_DATA", beside))
