"""The working copy of a run in object storage: the directory in which it is trained.

It lies under runs/, at the path of its URL. If this computer was the last to train the run, it is continued
as it is; else, or if it is not there, it is made anew from what is stored.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from boxcrew.core.errors import BoxcrewError, UsageError
from boxcrew.core.fence import fenced
from boxcrew.core.files import write_text
from boxcrew.core.lock_owner import LEASE
from boxcrew.core.storage.address import Location, Url
from boxcrew.core.storage.copies import download
from boxcrew.core.storage.growing import stored_files
from boxcrew.core.storage.store import ObjectInfo, Store, require_reachable
from boxcrew.train.bucket.files import Sign, list_files
from boxcrew.train.bucket.lease import BucketLease, acquire, read_holder
from boxcrew.train.bucket.uploader import RunUploader
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.directory import RUNS


@dataclass(frozen=True, kw_only=True, eq=False)
class RunLocation:
    """The directory in which a run is trained, and what keeps its URL up to date, if it has one."""

    folder: Path | None  # None: it is chosen later
    url: Url | None = None
    uploader: RunUploader | None = None

    def save(self) -> None:
        """Upload what is new, now."""
        if self.uploader is not None:
            self.uploader.upload()


@contextmanager
def run_location(place: Location | None, screen: Screen, *, is_new: bool) -> Iterator[RunLocation]:
    """Prepare the place of a run. Of one under a URL this process takes the lease, and what it writes is
    uploaded until the end. `is_new` says whether it may be a run that has not begun yet.
    """
    if not isinstance(place, Url):
        yield RunLocation(folder=place)
        return
    store, objects = Store(place), require_reachable(place)
    _require_run(place, objects, is_new=is_new)
    before = read_holder(store, objects)
    lease = acquire(store, objects, screen.info)
    try:
        folder, note = working_folder(place), _note(place)
        stored = _prepare(
            store, folder, note, is_ours=before is not None and _generation(note) == before.generation
        )
        write_text(note, str(lease.holder.generation))
        screen.info(f"{place}: training in {folder}, uploading in the background")
        uploader = RunUploader(store, folder, lease, stored=stored, warn=screen.warn)
        with fenced(folder, lease.require_own):
            yield from _mirrored(RunLocation(folder=folder, url=place, uploader=uploader), uploader)
        _require_stored(place, folder, uploader)
        screen.info(f"stored: {place}")
    finally:
        _close(lease, screen)


def working_folder(url: Url) -> Path:
    """Return the directory of this computer in which a run under a URL is trained."""
    return RUNS / url.scheme / url.path


def _mirrored(place: RunLocation, uploader: RunUploader) -> Iterator[RunLocation]:
    """Yield the place, and upload what happens there, also if it ends by an error."""
    uploader.start()
    try:
        yield place
    finally:
        uploader.close()
        uploader.upload(is_last=True)


def _require_stored(url: Url, folder: Path, uploader: RunUploader) -> None:
    if uploader.trouble is not None:
        raise BoxcrewError(
            f"{uploader.trouble}; everything is in {folder}",
            advice=f"when the storage works again: boxcrew resume run={url}, on this computer",
        )


def _close(lease: BucketLease, screen: Screen) -> None:
    try:
        lease.close()
    except BoxcrewError as error:
        screen.warn(f"{error.message}: the lease stays until it expires, and a resume waits for that")


def _require_run(url: Url, objects: Mapping[str, ObjectInfo], *, is_new: bool) -> None:
    """Raise `UsageError` if something else than a run is there, or, unless it `is_new`, nothing."""
    is_run = any(name.startswith(f"{LEASE}/") for name in objects)
    if objects and not is_run:
        raise UsageError(
            f"{url}: not a run, and not empty (it has {next(iter(objects))})",
            advice="give a URL that is not used yet",
        )
    if not is_new and not is_run:
        raise UsageError(
            f"run={url}: nothing is stored there", advice="give the URL that was out= of a training"
        )


def _prepare(store: Store, folder: Path, note: Path, *, is_ours: bool) -> dict[str, Sign | None]:
    """Bring the working copy to the state from which the run continues. Return the objects that are there,
    with the files that they are copies of where that is known.
    """
    objects = {name: info for name, info in store.objects().items() if not name.startswith(f"{LEASE}/")}
    if is_ours and folder.is_dir():
        return dict.fromkeys(objects)
    if folder.exists() and not note.is_file():
        raise UsageError(
            f"{folder}: exists, and is not the working copy of {store.url}", advice="move it away"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_text(note, "0")  # no generation: what follows may be cut off
    shutil.rmtree(folder, ignore_errors=True)
    if objects:
        download(store, stored_files(objects), folder)
    files = list_files(folder)
    return {name: files.get(name) for name in objects}


def _note(url: Url) -> Path:
    """Return the file beside the working copy with the generation of the lease under which it was written."""
    folder = working_folder(url)
    return folder.with_name(f".{folder.name}.generation")


def _generation(note: Path) -> int | None:
    try:
        return int(note.read_text())
    except (OSError, ValueError):
        return None
