"""The places that a packed set may be written to: each is a folder of this computer, or a URL."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from boxcrew.core.errors import UsageError
from boxcrew.core.files import flush, write_atomically
from boxcrew.core.storage import address
from boxcrew.core.storage.address import Url
from boxcrew.core.storage.store import Store, require_reachable


class PackLocation(ABC):
    """Files by their names, with forward slashes. A file is there whole or not at all."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Return the sizes of all files by their names."""

    @abstractmethod
    def find(self, name: str) -> bytes | None:
        """Return a small file; None if it is not there."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None: ...

    @abstractmethod
    def move(self, file: Path, name: str) -> None:
        """Let a file of the workspace be the one called `name`."""

    @abstractmethod
    def delete(self, name: str) -> None: ...

    @abstractmethod
    def workspace(self) -> Path:
        """Return an empty folder for files that are to be moved."""


def pack_location(place: address.Location) -> PackLocation:
    return _Bucket(place) if isinstance(place, Url) else _Folder(place)


@contextmanager
def workspace_of(place: PackLocation) -> Iterator[Path]:
    folder = place.workspace()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Folder(PackLocation):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sizes(self) -> dict[str, int]:
        if self._folder.is_file():
            raise UsageError(f"out={self._folder}: is a file", advice="give a new folder, or a URL")
        files = (file for file in self._folder.rglob("*") if file.is_file())
        return {file.relative_to(self._folder).as_posix(): file.stat().st_size for file in files}

    def find(self, name: str) -> bytes | None:
        file = self._folder / name
        return file.read_bytes() if file.is_file() else None

    def write(self, name: str, data: bytes) -> None:
        file = self._folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, lambda temporary: temporary.write_bytes(data))

    def move(self, file: Path, name: str) -> None:
        (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
        flush(file)
        file.replace(self._folder / name)

    def delete(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)
        parent = (self._folder / name).parent
        if parent != self._folder and not any(parent.iterdir()):
            parent.rmdir()

    def workspace(self) -> Path:
        folder = self._folder / ".packing"
        shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
        folder.mkdir(parents=True)
        return folder


class _Bucket(PackLocation):
    def __init__(self, url: Url) -> None:
        self._url = url
        self._store = Store(url)

    def sizes(self) -> dict[str, int]:
        return {name: info.size for name, info in require_reachable(self._url).items()}

    def find(self, name: str) -> bytes | None:
        return self._store.find(name)

    def write(self, name: str, data: bytes) -> None:
        self._store.write(name, data)

    def move(self, file: Path, name: str) -> None:
        self._store.write(name, file)
        file.unlink()

    def delete(self, name: str) -> None:
        self._store.delete(name)

    def workspace(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="boxcrew-pack-"))
