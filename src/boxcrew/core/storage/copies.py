"""Local copies of what lies under a URL, kept in the user's cache and brought up to date when used."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from boxcrew.core.cache import cache_folder
from boxcrew.core.errors import DataError
from boxcrew.core.files import write_json
from boxcrew.core.storage.address import Url
from boxcrew.core.storage.growing import StoredFile, stored_files
from boxcrew.core.storage.store import Store, require_reachable
from boxcrew.core.units import format_bytes

COMMIT = "COMMIT"  # a file that is written last, and says that those beside it are whole
_AT_ONCE = 256  # files after which the versions are noted
_VERSIONS, _LOCK = "versions.json", "lock"

Wanted = Callable[[str], bool]
"""Whether a file of that name is to be copied."""


def copied(url: Url, wanted: Wanted, *, kind: str, too_large: str = "") -> Path:
    """Return a directory with the wanted files under a URL as they are now; `UsageError` if it cannot be
    read. Each kind of copies has a place of its own. `too_large` is the advice where they do not fit on the
    disk.
    """
    files = {name: file for name, file in stored_files(require_reachable(url)).items() if wanted(name)}
    cache = cache_folder("copies") or Path(tempfile.gettempdir()) / "boxcrew-copies"
    digest = hashlib.blake2b(url.encode(), digest_size=4).hexdigest()
    place = cache / kind / f"{url.scheme}-{url.path.replace('/', '-')[-80:]}-{digest}"
    folder = place / PurePosixPath(url.path).name
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(place / _LOCK):
        versions = _read_versions(place / _VERSIONS)
        for name in sorted(versions.keys() - files.keys(), key=_commits_first):
            (folder / name).unlink(missing_ok=True)
        known = {name: versions[name] for name in versions.keys() & files.keys() if (folder / name).is_file()}
        changed = {name: file for name, file in files.items() if known.get(name) != file.version}
        _require_room(url, folder, changed, too_large)
        for some in _batches(changed):
            download(Store(url), some, folder)
            known |= {name: file.version for name, file in some.items()}
            write_json(place / _VERSIONS, known)
    return folder


def download(store: Store, files: Mapping[str, StoredFile], folder: Path) -> None:
    """Write files into a directory, those called COMMIT after all others."""
    for commits in (False, True):
        some = {name: file for name, file in files.items() if _is_commit(name) == commits}
        temporary = {name: _temporary(folder, name, store.url) for name in some}
        try:
            for path in temporary.values():
                path.parent.mkdir(parents=True, exist_ok=True)
            store.download({name: temporary[name] for name, file in some.items() if file.names == (name,)})
            for name, file in some.items():
                if file.names != (name,):
                    temporary[name].write_bytes(b"".join(store.read_all(file.names)))
                temporary[name].replace(folder / name)
        finally:
            for path in temporary.values():
                path.unlink(missing_ok=True)


def _is_commit(name: str) -> bool:
    return PurePosixPath(name).name == COMMIT


def _commits_first(name: str) -> tuple[bool, str]:
    return not _is_commit(name), name


def _batches(files: Mapping[str, StoredFile]) -> Iterator[dict[str, StoredFile]]:
    names = sorted(files, key=lambda name: (_is_commit(name), name))
    for start in range(0, len(names), _AT_ONCE):
        yield {name: files[name] for name in names[start : start + _AT_ONCE]}


def _temporary(folder: Path, name: str, url: Url) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "" in name.split("/"):
        raise DataError(f"{url / name}: cannot be the name of a file below a directory")
    return folder / path.parent / f".{path.name}.part"


def _require_room(url: Url, folder: Path, files: Mapping[str, StoredFile], advice: str) -> None:
    needed, free = sum(file.size for file in files.values()), shutil.disk_usage(folder).free
    if needed > free:
        message = (
            f"{url}: its copy in {folder} needs {format_bytes(needed)}, and {format_bytes(free)} are free"
        )
        raise DataError(message, advice=advice or "free some disk space")


def _read_versions(file: Path) -> dict[str, str]:
    try:
        versions: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
        return versions
    except (OSError, ValueError):
        return {}


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Let one process at a time bring a copy up to date."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        fcntl.flock(lock, fcntl.LOCK_UN)  # children that were forked meanwhile may keep the file open
