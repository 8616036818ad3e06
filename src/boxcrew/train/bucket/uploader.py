"""The uploads of a run: what is new in its directory is stored beside the loop, one file at a time.

    FILE                         a file as it is, such as plan.json or weights/best.safetensors
    checkpoints/STEP/…, COMMIT   the files of a checkpoint, and last its COMMIT
    parts/FILE/…                 what grows, such as metrics.jsonl, in parts; at the end it is one object

An older checkpoint goes only when a newer one has its COMMIT there.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.storage.copies import COMMIT
from boxcrew.core.storage.growing import file_of_part, last_edition, part_name
from boxcrew.core.storage.store import MissingObjectError, StorageError, Store
from boxcrew.train.bucket.files import Sign, checkpoints_of, grows, is_commit, list_files
from boxcrew.train.bucket.lease import BucketLease

PERIOD = 5.0  # seconds between two looks at the directory
PART_SECONDS = 60.0  # between two parts of files that grow, if no checkpoint is uploaded
_HELD = ".uploading"  # directory with links to the files of checkpoints, which the run may remove meanwhile


@dataclass(kw_only=True)
class _Growing:
    """The part of a growing file that is stored."""

    edition: int
    end: int = 0  # bytes
    checksum: int = 0  # of these bytes


class RunUploader:
    """Uploads what changes in a run's directory, in a thread, from `start` to `close`."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        lease: BucketLease,
        *,
        stored: Mapping[str, Sign | None],
        warn: Callable[[str], None],
    ) -> None:
        """Upload to `store`, which has the objects `stored`, with the signs of their files if known."""
        self._store, self._folder, self._lease, self._warn = store, folder, lease, warn
        self._stored = dict(stored)
        self._growing: dict[str, _Growing] = {}
        self._parts_at = time.monotonic()
        self._turn = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="uploader", daemon=True)
        self.trouble: str | None = None  # why the last attempt to upload failed

    def start(self) -> None:
        self._thread.start()

    def upload(self, *, is_last: bool = False) -> None:
        """Upload everything that is new. With `is_last` files that have grown become whole objects."""
        with self._turn:
            try:
                self._pass(is_last=is_last)
            except StorageError as error:
                if self.trouble is None:
                    self._warn(f"{error.message}; the run continues, and the upload is tried again")
                self.trouble = error.message
                return
        if self.trouble is not None:
            self._warn(f"{self._store.url}: uploads work again")
        self.trouble = None

    def close(self) -> None:
        """End the thread, after the upload in which it is."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(PERIOD):
            try:
                self.upload()
            except BoxcrewError:  # the run was taken over: the next file that it writes says so
                return

    def _pass(self, *, is_last: bool) -> None:
        files = list_files(self._folder)
        if not files:  # the directory is gone, or nothing has begun: what is stored stays
            return
        checkpoints = checkpoints_of(files)
        changed = {name for name, sign in files.items() if self._stored.get(name) != sign}
        new = [folder for folder, names in checkpoints.items() if changed & names]
        self._hold(new, files)
        inside = {name for names in checkpoints.values() for name in names}
        outside = sorted(name for name in changed - inside if not grows(name))
        for name in outside:
            if not is_commit(name):
                self._put(name, self._folder / name, files[name])
        if is_last or new or time.monotonic() - self._parts_at > PART_SECONDS:
            self._put_all_growing(files, is_last=is_last)
        for folder in new:
            self._put_checkpoint(folder, {name: files[name] for name in checkpoints[folder]})
        for name in filter(is_commit, outside):
            self._put(name, self._folder / name, files[name])
        self._remove_all(name for name in self._stored if (file_of_part(name) or name) not in files)

    def _hold(self, folders: Iterable[str], files: Mapping[str, Sign]) -> None:
        """Link the files of checkpoints: they can then be uploaded even if the run removes them meanwhile."""
        held = self._folder / _HELD
        shutil.rmtree(held, ignore_errors=True)
        for folder in folders:
            (held / folder).mkdir(parents=True, exist_ok=True)
            for name in files:
                if name.startswith(f"{folder}/"):
                    with suppress(FileNotFoundError):
                        os.link(self._folder / name, held / name)

    def _put_checkpoint(self, folder: str, files: Mapping[str, Sign]) -> None:
        """Upload a checkpoint, its COMMIT after all else. One that was half removed by then is left out."""
        held, commit = self._folder / _HELD, f"{folder}/{COMMIT}"
        if not all((held / name).is_file() for name in files):
            return
        if commit in self._stored:
            # With its checksums, a COMMIT is the same only if all files are.
            if self._store.find(commit) == (held / commit).read_bytes():
                self._stored |= files
                return
            self._remove(commit)
        for name in sorted(files, key=lambda name: (is_commit(name), name)):
            self._put(name, held / name, files[name])
        shutil.rmtree(held / folder, ignore_errors=True)

    def _put(self, name: str, path: Path, sign: Sign) -> None:
        self._lease.require_now()
        if path.is_file():  # it may have been removed since it was listed
            self._store.write(name, path)
            self._stored[name] = sign

    def _put_all_growing(self, files: Mapping[str, Sign], *, is_last: bool) -> None:
        self._parts_at = time.monotonic()
        for name in filter(grows, files):
            if not is_last or self._stored.get(name) != files[name]:
                self._put_part(name, files[name])
            if is_last:
                self._put(name, self._folder / name, files[name])
                self._remove_all(part for part in self._stored if file_of_part(part) == name)
                self._growing.pop(name, None)

    def _put_part(self, name: str, sign: Sign) -> None:
        """Upload what was added to a file; all of it, as a new edition, if it was written anew."""
        growing = self._growing.get(name)
        content = (self._folder / name).read_bytes()
        if growing is None or zlib.crc32(content[: growing.end]) != growing.checksum:
            growing = _Growing(edition=last_edition(name, self._stored) + 1)
        added = content[growing.end :]
        if not added:
            return
        self._lease.require_now()
        part = part_name(name, edition=growing.edition, start=growing.end)
        self._store.write(part, added)
        self._stored[part] = sign
        is_new = not growing.end
        growing.end, growing.checksum = len(content), zlib.crc32(added, growing.checksum)
        self._growing[name] = growing
        if is_new:  # the whole file, and its editions before, count no more
            self._remove_all(
                old for old in self._stored if (file_of_part(old) or old) == name and old != part
            )

    def _remove_all(self, names: Iterable[str]) -> None:
        for name in sorted(names, key=lambda name: (not is_commit(name), name)):
            self._remove(name)

    def _remove(self, name: str) -> None:
        self._lease.require_now()
        with suppress(MissingObjectError):  # it has gone already
            self._store.delete(name)
        del self._stored[name]
