"""Objects under a URL, through fsspec. Its packages repeat what fails for a moment; the rest is an error."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from boxcrew.core.errors import BoxcrewError, UsageError, first_line
from boxcrew.core.storage.address import Url, require_package

_AT_ONCE = 16  # requests
_S3 = {"retries": {"mode": "standard", "max_attempts": 4}, "connect_timeout": 5, "read_timeout": 30}
_OPTIONS: Mapping[str, Mapping[str, Any]] = {"s3": {"config_kwargs": _S3}}
_ADVICE = (
    "check the URL, the network, and the credentials (the environment variables or files of the storage)"
)


class StorageError(BoxcrewError):
    """Object storage did not do what was asked of it, also when it was asked again."""


class MissingObjectError(StorageError):
    """An object, or its bucket, is not there."""


@dataclass(frozen=True, kw_only=True)
class ObjectInfo:
    """The size of an object, and a text that changes when its content does."""

    size: int
    version: str


@dataclass(frozen=True)
class Store:
    """The objects under a URL, by their names below it, with forward slashes. It may be used after a fork."""

    url: Url

    def __post_init__(self) -> None:
        require_package(self.url)

    def objects(self) -> dict[str, ObjectInfo]:
        """Return all objects, sorted by name; none if nothing has such a name."""
        with _reported(self.url, "listed"):
            found: dict[str, dict[str, Any]] = self._files().find(self.url.path, detail=True)
        start = len(self.url.path) + 1
        # Some tools make objects that stand for directories: empty, with a slash at the end.
        names = [name for name in sorted(found) if len(name) > start and not name.endswith("/")]
        return {name[start:]: _info(found[name]) for name in names}

    def read(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return an object, or its bytes from `start` up to `end`."""
        with _reported(self.url / name, "read"):
            data: bytes = self._files().cat_file(f"{self.url.path}/{name}", start=start, end=end)
            return data

    def read_all(self, names: Sequence[str]) -> list[bytes]:
        """Return several objects, which are read at the same time."""
        if not names:
            return []
        paths = [f"{self.url.path}/{name}" for name in names]
        with _reported(self.url, "read"):
            read: dict[str, bytes] | bytes = self._files().cat(paths, batch_size=_AT_ONCE)
        return [read] if isinstance(read, bytes) else [read[path] for path in paths]

    def read_ranges(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Return the bytes from start up to end of several objects, which are read at the same time. Where an
        object ends before, they are fewer.
        """
        if not ranges:
            return []
        names, starts, ends = zip(*ranges, strict=True)
        paths = [f"{self.url.path}/{name}" for name in names]
        with _reported(self.url, "read"):
            read: list[bytes] = self._files().cat_ranges(
                paths, list(starts), list(ends), batch_size=_AT_ONCE, on_error="raise"
            )
        return read

    def find(self, name: str) -> bytes | None:
        """Return a small object; None if it is not there."""
        try:
            return self.read(name)
        except MissingObjectError:
            return None

    def write(self, name: str, data: bytes | Path) -> None:
        """Write an object, of bytes or of a file's content, over one of this name. It is seen only whole."""
        path = f"{self.url.path}/{name}"
        with _reported(self.url / name, "written"):
            if isinstance(data, Path):
                self._files().put_file(str(data), path)
            else:
                self._files().pipe_file(path, data)

    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless there is one; return whether it was written. Of several that try at the same
        time one succeeds.
        """
        try:
            with _reported(self.url / name, "written"):
                self._files().pipe_file(f"{self.url.path}/{name}", data, mode="create")
        except FileExistsError:
            return False
        return True

    def delete(self, name: str) -> None:
        """Remove an object, if it is there."""
        with _reported(self.url / name, "removed"):
            self._files().rm_file(f"{self.url.path}/{name}")

    def download(self, files: Mapping[str, Path]) -> None:
        """Write objects to files, several at the same time. Whoever needs whole files renames them after."""
        if not files:
            return
        names = [f"{self.url.path}/{name}" for name in files]
        with _reported(self.url, "read"):
            self._files().get(names, [str(file) for file in files.values()], batch_size=_AT_ONCE)

    def _files(self) -> Any:
        return _file_system(self.url.scheme, os.getpid())


@lru_cache(maxsize=8)
def _file_system(scheme: str, process: int) -> Any:  # noqa: ARG001 - its connections do not survive a fork
    import fsspec

    options = _OPTIONS.get(scheme, {})
    return fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True, **options)


@contextmanager
def _reported(url: Url, done: str) -> Iterator[None]:
    """Turn what the packages raise into errors that name the URL."""
    try:
        yield
    except FileExistsError:
        raise
    except FileNotFoundError as error:
        raise MissingObjectError(f"{url}: cannot be {done}: {_reason(error)}", advice=_ADVICE) from None
    except Exception as error:  # noqa: BLE001 - each storage has errors of its own, of no common base
        raise StorageError(f"{url}: cannot be {done}: {_reason(error)}", advice=_ADVICE) from None


def _reason(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or first_line(error)
    return (
        "no such object"
        if isinstance(error, FileNotFoundError) and "://" not in text and "/" in text
        else text
    )


def _info(found: Mapping[str, Any]) -> ObjectInfo:
    version = next(
        (found[key] for key in ("ETag", "etag", "md5Hash", "LastModified", "mtime") if key in found), ""
    )
    return ObjectInfo(size=int(found["size"]), version=str(version))


def require_reachable(url: Url) -> dict[str, ObjectInfo]:
    """Return the objects under a URL that a user has given; `UsageError` if that fails."""
    try:
        return Store(url).objects()
    except StorageError as error:
        raise UsageError(error.message, advice=error.advice) from None
