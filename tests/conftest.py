"""What every test may ask for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before torch is imported: waiting OpenMP threads must not fight with loader workers and child processes.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets that stands beside the checkout, or in BOXCREW_SHARED_DATA."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("BOXCREW_SHARED_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"needs the real data sets, looked for in {folder} (set BOXCREW_SHARED_DATA)")
    return folder
