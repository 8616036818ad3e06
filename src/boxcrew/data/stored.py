"""Data sets in object storage: packed ones are read where they are, others are copied."""

from __future__ import annotations

from pathlib import Path

from boxcrew.core.errors import UsageError
from boxcrew.core.storage.address import Url, is_url
from boxcrew.core.storage.copies import COMMIT, copied
from boxcrew.core.storage.store import StorageError, Store

INDEX_MARKS = tuple(f"index/{name}" for name in (COMMIT, "shards.json", "UNFINISHED"))
"""Objects of which each packed set has one at any time."""

_PACK = "pack it (boxcrew data pack), then only the images that are needed are read; or free some disk space"


def local_or_packed(path: str | Path) -> Path | Url:
    """Return the path of a set on this computer. One under a URL is copied, and the copy brought up to date,
    unless it is packed: then it is the URL.
    """
    if not (isinstance(path, str) and is_url(path)):
        return Path(path)
    url = Url.of(path)
    if _is_packed(url):
        return url
    folder = copied(url, _is_visible, kind="data", too_large=_PACK)
    if not any(folder.iterdir()):
        advice = "give the URL of the folder of a data set"
        raise UsageError(f"{url}: nothing is stored below it", advice=advice)
    return folder


def _is_packed(url: Url) -> bool:
    try:
        return any(Store(url).find(name) is not None for name in INDEX_MARKS)
    except StorageError as error:
        raise UsageError(error.message, advice=error.advice) from None


def _is_visible(name: str) -> bool:
    return not any(part.startswith(".") for part in name.split("/"))
