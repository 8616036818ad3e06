"""Files that grow, such as a log, as objects: in parts, since nothing can be added to an object.

A part is called `parts/FILE/EDITION-START`: it holds the bytes of a file from START on. Where a file was
written anew instead of added to, its parts are those of another edition. The last edition counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from boxcrew.core.storage.store import ObjectInfo

_PART = re.compile(r"parts/(?P<file>.+)/(?P<edition>\d{6})-(?P<start>\d{15})")


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file as it is stored: the objects that it is made of, in order."""

    names: tuple[str, ...]
    size: int
    version: str  # changes when the content does


def part_name(file: str, *, edition: int, start: int) -> str:
    return f"parts/{file}/{edition:06d}-{start:015d}"


def file_of_part(name: str) -> str | None:
    """Return the file that an object is a part of; None if it is a whole file."""
    match = _PART.fullmatch(name)
    return match["file"] if match else None


def last_edition(file: str, names: Iterable[str]) -> int:
    """Return the number of the last edition of a file; 0 if it has no parts."""
    matches = (_PART.fullmatch(name) for name in names)
    return max((int(match["edition"]) for match in matches if match and match["file"] == file), default=0)


def stored_files(objects: Mapping[str, ObjectInfo]) -> dict[str, StoredFile]:
    """Return the files that objects make up. A file that also has parts is made of those."""
    editions: dict[str, dict[int, dict[int, str]]] = {}
    files: dict[str, StoredFile] = {}
    for name, info in objects.items():
        if match := _PART.fullmatch(name):
            edition = editions.setdefault(match["file"], {}).setdefault(int(match["edition"]), {})
            edition[int(match["start"])] = name
        else:
            files[name] = StoredFile(names=(name,), size=info.size, version=info.version)
    for file, of_file in editions.items():
        names = _from_the_start(of_file[max(of_file)], objects)
        size = sum(objects[name].size for name in names)
        files[file] = StoredFile(names=names, size=size, version=f"{names[-1:]}, {size} bytes")
    return files


def _from_the_start(parts: Mapping[int, str], objects: Mapping[str, ObjectInfo]) -> tuple[str, ...]:
    """Return the parts that follow each other without a gap, from the first byte on."""
    names: list[str] = []
    end = 0
    while end in parts and objects[parts[end]].size:
        names.append(parts[end])
        end += objects[names[-1]].size
    return tuple(names)
