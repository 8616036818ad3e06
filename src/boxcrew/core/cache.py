"""The folder for results that are kept between runs, and can be computed again."""

from __future__ import annotations

from pathlib import Path


def cache_folder(name: str) -> Path | None:
    """Return a folder in the user's home; None if there is no home."""
    try:  # whatever XDG_CACHE_HOME says: only commands read the environment
        return Path.home() / ".cache" / "boxcrew" / name
    except RuntimeError:
        return None
