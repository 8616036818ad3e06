"""Where things that can be found out again are kept between runs."""

from __future__ import annotations

from pathlib import Path


def cache_folder(name: str) -> Path | None:
    """In the user's home, whatever XDG_CACHE_HOME says: only commands look at the environment. None where
    there is no home directory.
    """
    try:
        return Path.home() / ".cache" / "boxcrew" / name
    except RuntimeError:
        return None
