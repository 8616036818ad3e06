"""Copies of runs that several processes of a test run share."""

from __future__ import annotations

import shutil
from pathlib import Path


def copied(run: Path, to: Path) -> Path:
    """Copy a run directory, without what another process writes there while it holds the lock."""
    return Path(shutil.copytree(run, to, ignore=shutil.ignore_patterns(".*", "lease", "lock")))
