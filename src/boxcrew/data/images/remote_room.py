"""The room on the disk for images of buckets: sets that were not used for longest make place for new ones."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.files import write_json
from boxcrew.core.storage.address import Url
from boxcrew.data.images.remote import IN_USE, SETTINGS, ShardCache, cache_in

_LEFT_FREE = 0.1  # of the disk's free space: others write too
_held: dict[Path, int] = {}
"""The handles that say which folders this process uses. The system closes them with the process."""


def open_cache(folder: Path, url: Url, shards: Mapping[str, int], *, budget: int) -> ShardCache:
    """Return the cache in `folder` of the set under `url`, made if it is new. All caches beside it and it
    together hold at most `budget` bytes. `shards` are sizes by name.
    """
    try:
        return _opened(folder, url, shards, budget)
    except OSError as error:
        message = f"{folder}: cannot keep the images of {url}: {error.strerror or error}"
        raise DataError(message, advice="free some disk space, or check who may write there") from None


def _opened(folder: Path, url: Url, shards: Mapping[str, int], budget: int) -> ShardCache:
    folder.mkdir(parents=True, exist_ok=True)
    _hold(folder)
    wanted = min(sum(shards.values()), budget)
    others = _used_by_others(folder, at_most=budget - wanted)
    own = _used(folder)
    free = int(shutil.disk_usage(folder).free * (1 - _LEFT_FREE))
    room = max(0, min(budget - others, own + free))
    settings = {"url": url, "budget": room, "shards": dict(shards)}
    write_json(folder / SETTINGS, settings)
    cache_in.cache_clear()
    return cache_in(folder)


def _hold(folder: Path) -> None:
    """Say that this process, and those forked from it, use a folder."""
    if folder in _held and not (folder / IN_USE).exists():  # somebody has cleared the cache
        os.close(_held.pop(folder))
    if folder not in _held:
        _held[folder] = os.open(folder / IN_USE, os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(_held[folder], fcntl.LOCK_SH)
    os.utime(folder / IN_USE)


def _used_by_others(folder: Path, *, at_most: int) -> int:
    """Return the bytes of all other caches, after those that nobody uses were removed, the one that was not
    used for longest first, until the rest has `at_most`.
    """
    others = [each for each in folder.parent.iterdir() if each != folder and (each / IN_USE).is_file()]
    others.sort(key=lambda each: (each / IN_USE).stat().st_mtime_ns)
    total = sum(map(_used, others))
    for each in others:
        if total <= at_most:
            break
        used = _used(each)
        if _removed(each):
            total -= used
    return total


def _removed(folder: Path) -> bool:
    with suppress(OSError), (folder / IN_USE).open("r+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
        return True
    return False


def _used(folder: Path) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(np.fromfile(folder / "used", dtype=np.int64, count=1)[0])
    return 0
