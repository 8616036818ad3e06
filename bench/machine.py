"""What every figure must be read with: the machine and the commit it was measured on."""

from __future__ import annotations

import subprocess
from pathlib import Path

from boxcrew.hardware.probe import probe_machine


def machine_line() -> str:
    machine = probe_machine()
    return f"{machine.devices[0].model}, {machine.headline()}, torch {machine.torch}, Python {machine.python}"


def commit() -> str:
    """The short hash, with a + where the tree differs from it."""
    here = Path(__file__).parent
    found = _git(here, "rev-parse", "--short", "HEAD")
    return found + ("+" if _git(here, "status", "--porcelain", "--untracked-files=no") else "")


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()
