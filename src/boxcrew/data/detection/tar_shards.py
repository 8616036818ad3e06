"""Lists the files in tar archives. Nothing is extracted: members are read where they are."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from boxcrew.data.images.packed import PackedFile, read_part

_BLOCK = 512  # bytes; headers and contents begin at multiples of it
_MAGICS = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"\x28\xb5": "zstd"}
_TAR_FAULTS = (tarfile.TarError, OSError, ValueError, EOFError, OverflowError, RecursionError)


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A tar archive, and its regular files in their order."""

    file: Path
    members: list[PackedFile] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # what of it cannot be used


def list_shard(file: Path) -> Shard:
    """List the files of an archive from its headers. Links, devices and sparse files are not followed."""
    shard = Shard(file=file)
    try:
        shard.members.extend(_members(file, shard.faults))
    except _TAR_FAULTS as error:
        shard.faults.append(f"cannot be read: {_reason(file, error)}")
    return shard


def first_members(file: Path, count: int) -> list[PackedFile]:
    """Return some of the first files of an archive; none if it is not a tar archive."""
    members = list[PackedFile]()
    try:
        for member in _members(file, []):
            members.append(member)
            if len(members) == count:
                break
    except _TAR_FAULTS:
        return members
    return members


def _members(file: Path, faults: list[str]) -> Iterator[PackedFile]:
    size, last, num_special = file.stat().st_size, -1, 0
    with tarfile.open(file, "r:") as tar:
        while (member := tar.next()) is not None:
            # Damaged headers can have negative sizes, which lead back to members that were read before.
            if member.size < 0 or member.offset <= last:
                faults.append(f"is damaged at byte {member.offset}; what follows is left out")
                return
            last = member.offset
            if member.isdir():
                continue
            if not member.isreg() or member.issparse():
                num_special += 1
                continue
            if member.offset_data + member.size > size:
                faults.append(f"is cut short in {member.name}")
                return
            name = member.name.replace("\\", "/").removeprefix("./")
            if name.startswith("/") or ".." in PurePosixPath(name).parts:
                faults.append(f"the name of a member leaves the archive: {name}")
            else:
                yield PackedFile(file, name, member.offset_data, member.size)
        end = tar.offset
    if num_special:
        faults.append(f"{num_special} links, devices or sparse files are not followed")
    rest = read_part(file, end, _BLOCK)
    if rest != bytes(_BLOCK):  # the module takes any other block for the end too
        what = f"is damaged at byte {end}" if rest else "has no end mark and may be cut short"
        faults.append(f"{what}; what follows is left out" if rest else what)


def _reason(file: Path, error: Exception) -> str:
    kind = next((name for magic, name in _MAGICS.items() if read_part(file, 0, 2) == magic), None)
    if kind:
        return f"it is compressed with {kind}; images are read where they are, so decompress it"
    return str(error).strip() or type(error).__name__
