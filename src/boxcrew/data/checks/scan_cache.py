"""The results of scans, kept between runs. Each set has a folder of segments, arrays of what was found out
about some files, which are only ever added: a scan that is killed continues where its last segment ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import PIL

from boxcrew.core.files import write_atomically, write_text
from boxcrew.core.types import Bools, Ints
from boxcrew.data.checks.problem import ProblemKind

SCAN_RESULT = np.dtype(
    [
        ("key", "<u8"),  # the hash of the image's key
        ("stamp", "<i8", 3),
        ("ending", "<u8"),  # a hash of the last bytes; 0 where it was not needed yet
        ("digest", "<u8", 2),  # a hash of the content; zeros where it was not needed yet
        ("is_faulty", "?"),
    ]
)
"""What was found out about one file."""

ScanResults = npt.NDArray[np.void]
Fault = tuple[ProblemKind, str]
"""What is wrong with a file, and the message about it."""

_VERSION = [3, PIL.__version__, cv2.__version__]  # of the layout, and of the libraries that decoded
_MAX_SETS = 100
_MAX_SEGMENTS = 16  # more of them are made one
_DAMAGED = (OSError, ValueError, TypeError, KeyError, AttributeError, EOFError, RecursionError)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Stored:
    """All that is stored about a set."""

    results: ScanResults  # ascending by key, each key once
    faults: Mapping[int, Fault]  # by the hashes of keys
    num_segments: int


class ScanCache:
    """The results of scans of one data set. What cannot be read counts as absent; failure to write it is
    ignored.
    """

    def __init__(self, root: Path, folder: Path | None) -> None:
        name = json.dumps([_VERSION, str(root.resolve())]).encode(errors="surrogateescape")
        self._folder = folder / hashlib.blake2b(name, digest_size=16).hexdigest() if folder else None
        self._stored = _read(self._folder)

    @property
    def has_many_segments(self) -> bool:
        return self._stored.num_segments >= _MAX_SEGMENTS

    def find(self, keys: npt.NDArray[np.uint64], stamps: Ints) -> tuple[ScanResults, Bools]:
        """Return the results (n,) of files with these hashes of their keys and these stamps (n, 3), and which
        of them are known. The others have the key and the stamp alone.
        """
        results, stored = np.zeros(len(keys), dtype=SCAN_RESULT), self._stored.results
        if len(stored):
            places = np.searchsorted(stored["key"], keys).clip(max=len(stored) - 1)
            results = stored[places]
        known = (results["key"] == keys) & (results["stamp"] == stamps).all(axis=1) & (stamps[:, 0] >= 0)
        results[~known] = 0
        results["key"], results["stamp"] = keys, stamps
        return results, known

    def fault(self, look: np.void) -> Fault:
        """Return what is wrong with a file that is known to be faulty."""
        return self._stored.faults[int(look["key"])]

    def add(self, results: ScanResults, faults: Mapping[int, Fault]) -> None:
        """Store some results, and the faults of these files by the hashes of their keys."""
        if self._folder is None or not len(results):
            return
        name = f"{time.time_ns():020}-{os.getpid()}"
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            if faults:
                write_text(self._folder / f"{name}.json", json.dumps(faults))
            write_atomically(self._folder / f"{name}.npy", lambda file: _save(file, results))

    def replace_all(self, results: ScanResults, faults: Mapping[int, Fault]) -> None:
        """Store these results and nothing else: segments of files that changed or went would add up."""
        before = _segments(self._folder)
        self.add(results[np.argsort(results["key"], kind="stable")], faults)
        if len(_segments(self._folder)) > len(before):
            _remove(before)

    def forget_old_sets(self) -> None:
        """Remove the sets that were not written for longest, so that those that are gone do not fill the
        disk.
        """
        if self._folder is None:
            return
        with suppress(OSError):
            sets = sorted(self._folder.parent.iterdir(), key=lambda file: file.stat().st_mtime_ns)
            for folder in sets[:-_MAX_SETS]:
                shutil.rmtree(folder, ignore_errors=True)


def _save(file: Path, results: ScanResults) -> None:
    with file.open("wb") as opened:
        np.save(opened, results, allow_pickle=False)


def _segments(folder: Path | None) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.glob("*.npy")) if folder else []
    return []


def _remove(segments: list[Path]) -> None:
    for segment in segments:
        with suppress(OSError):
            segment.unlink()
            segment.with_suffix(".json").unlink(missing_ok=True)


def _read(folder: Path | None) -> _Stored:
    parts, faults = [np.zeros(0, dtype=SCAN_RESULT)], dict[int, Fault]()
    segments = _segments(folder)
    for segment in segments:
        with suppress(*_DAMAGED):
            results, own = _read_segment(segment)
            parts.append(results)
            faults |= own
    if len(parts) == 2 and (parts[1]["key"][1:] > parts[1]["key"][:-1]).all():
        return _Stored(results=parts[1], faults=faults, num_segments=1)  # as it is in its file
    newest_first = np.concatenate(parts[::-1])
    _, first = np.unique(newest_first["key"], return_index=True)
    return _Stored(results=newest_first[first], faults=faults, num_segments=len(segments))


def _read_segment(segment: Path) -> tuple[ScanResults, dict[int, Fault]]:
    results = np.asarray(np.load(segment, mmap_mode="r", allow_pickle=False))
    if results.dtype != SCAN_RESULT or results.ndim != 1:
        raise ValueError(f"{segment}: of another kind")
    faulty, file = results["key"][results["is_faulty"]].tolist(), segment.with_suffix(".json")
    content = json.loads(file.read_bytes()) if faulty else {}
    return results, {key: _fault(content[str(key)]) for key in faulty}


def _fault(value: object) -> Fault:
    if not isinstance(value, list) or [*map(type, value)] != [str, str]:
        raise TypeError(value)
    return value[0], value[1]
