"""The photos that tasks of Label Studio name: inside the task itself, or in one folder of this machine. An
address is never asked, whoever has written it.
"""

from __future__ import annotations

import base64
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from boxcrew.data.images.source_image import EncodedImage
from boxcrew.serve.json_body import bad_request
from boxcrew.serve.photo import NamedPhoto, Photo
from boxcrew.serve.refusals import RefusedError
from boxcrew.serve.uploads import MAX_BYTES

_UPLOADS, _LOCAL_FILES = "/data/upload/", "/data/local-files"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe does not block


@dataclass(frozen=True, kw_only=True, eq=False)
class FilePhoto:
    """A photo in a folder, which is read when it is decoded."""

    name: str
    root: Path
    relative: str

    def open(self) -> EncodedImage:
        """Return the photo; `RefusedError` if there is no such file inside the folder."""
        try:
            data = read_inside(self.root, self.relative)
        except (OSError, ValueError, RuntimeError):
            message = f"{self.name}: there is no such file in the folder of label_studio="
            advice = "it is the folder that Label Studio keeps uploads in, or its local storage"
            raise RefusedError(422, "unreadable_photo", message, advice=advice) from None
        return Photo(name=self.name, data=data).open()


def task_photo(value: str, name: str, root: Path | None) -> NamedPhoto:
    """Return the photo that a task names."""
    if value.startswith("data:"):
        return Photo(name=name, data=_data_uri(value, name))
    relative = _relative(value)
    if relative is None:
        message = f"{name}: photos are not fetched from addresses"
        advice = "import the photos to Label Studio by upload or local storage, and give label_studio=DIR"
        raise RefusedError(422, "unreadable_photo", message, advice=advice)
    if root is None:
        message = f"{name}: is a file of Label Studio, of which the service has no folder"
        advice = "start the service with label_studio=DIR: the folder of Label Studio's files"
        raise RefusedError(422, "unreadable_photo", message, advice=advice)
    return FilePhoto(name=name, root=root, relative=relative)


def _data_uri(value: str, name: str) -> bytes:
    head, comma, text = value.partition(",")
    if not comma or not head.endswith(";base64"):
        raise bad_request(f"{name}: is a data: URI without base64")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise bad_request(f"{name}: is not base64") from None


def _relative(value: str) -> str | None:
    """Return the path of a file in Label Studio's folder; None for anything else."""
    try:
        parts = urlsplit(value)
    except ValueError:
        return None
    if parts.scheme or parts.netloc:
        return None
    if parts.path.startswith(_UPLOADS):
        return unquote(parts.path.removeprefix("/data/"))
    if parts.path.rstrip("/") == _LOCAL_FILES:
        paths = parse_qs(parts.query, max_num_fields=10).get("d", [])
        return paths[-1] if paths else None
    return None


def read_inside(root: Path, relative: str) -> bytes:
    """Return the content of a file inside a folder. An error, of several kinds, if it is none, too large, or
    if its path or a link on it leads outside: links may lead from one place inside to another.
    """
    base = root.resolve(strict=True)
    path = (base / relative.lstrip("/")).resolve(strict=True)
    *folders, last = path.relative_to(base).parts
    # What the path was resolved to has no links: none is followed that appears from now on.
    place = os.open(base, _FOLDER)
    try:
        for folder in folders:
            inner = os.open(folder, _FOLDER, dir_fd=place)
            os.close(place)
            place = inner
        with os.fdopen(os.open(last, _FILE, dir_fd=place), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
                raise ValueError
            return file.read(MAX_BYTES)
    finally:
        os.close(place)
