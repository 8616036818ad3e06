"""Runs in object storage as other commands read them: from copies in the user's cache."""

from __future__ import annotations

import re
from pathlib import Path

from boxcrew.core.errors import UsageError
from boxcrew.core.lock_owner import LEASE
from boxcrew.core.storage.address import Location, Url, location_of
from boxcrew.core.storage.copies import Wanted, copied

_LARGE = re.compile(r"(.+/)?(plots|tensorboard|export|workspace)/.+|.+\.safetensors")
_WEIGHTS = re.compile(r"(.+/)?weights/[^/]+\.safetensors")


def records(name: str) -> bool:
    """Want what says how a run was made and how far it is."""
    return not _is_lease(name) and _LARGE.fullmatch(name) is None


def weights(name: str) -> bool:
    """Want the records of a run and its weights, with which it predicts."""
    return records(name) or _WEIGHTS.fullmatch(name) is not None


def everything(name: str) -> bool:
    """Want all of a run, so that another can continue from it."""
    return not _is_lease(name)


def _is_lease(name: str) -> bool:
    return name.startswith(f"{LEASE}/")


def local_run(location: Location | str, wanted: Wanted) -> Path:
    """Return the directory of a run: of one under a URL, that of a copy with what is wanted."""
    location = (
        location_of(location) if isinstance(location, str) and not isinstance(location, Url) else location
    )
    if not isinstance(location, Url):
        return Path(location)
    folder = copy_of_run(location, wanted)
    if not any(folder.iterdir()):
        raise UsageError(
            f"run={location}: nothing is stored there", advice="give the URL that was out= of a training"
        )
    return folder


def copy_of_run(url: Url, wanted: Wanted) -> Path:
    """Return the directory of a copy of a run, which may be empty."""
    return copied(url, wanted, kind=f"runs-{wanted.__name__}")
