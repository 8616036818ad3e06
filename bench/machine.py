"""The machine and the commit that a figure was measured on."""

from __future__ import annotations

import subprocess
from pathlib import Path

from boxcrew.hardware.probe import probe_machine


def machine_line() -> str:
    machine = probe_machine()
    return f"{machine.devices[0].model}, {machine.headline()}, torch {machine.torch}, Python {machine.python}"


def commit() -> str:
    """Return the short hash, with a + if the working tree differs."""
    here = Path(__file__).parent
    short = _git(here, "rev-parse", "--short", "HEAD")
    return short + ("+" if _git(here, "status", "--porcelain", "--untracked-files=no") else "")


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()
