"""Finds the images of a data set that cannot be decoded, before training meets them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from boxcrew.core.errors import DataError
from boxcrew.data.source import Problem, Record, Source


def check_images(
    source: Source, *, workers: int, progress: Callable[[int, int], None] | None = None
) -> tuple[Source, tuple[Problem, ...]]:
    """Decodes every image once; gives the set without the unreadable ones, and these by name.

    Threads do, since decoding releases the interpreter's lock. `progress` is told (done, total), from
    this thread. Images that are drawn, not read, are not checked.
    """
    records = [record for split in source.splits.values() for record in split if record.path]
    found: dict[str, Problem] = {}

    def check(record: Record) -> Problem | None:
        try:
            source.read(record)
        except DataError as error:
            what = error.message.removeprefix(f"{record.path}: ")
            return Problem(where=record.key, what=what, action="left out")
        return None

    with ThreadPoolExecutor(max_workers=workers) as pool:
        checked = zip(records, pool.map(check, records), strict=True)
        for done, (record, problem) in enumerate(checked, 1):
            if problem:
                found[record.key] = problem
            if progress:
                progress(done, len(records))
    problems = tuple(found.values())
    return (source.without(found, problems) if found else source), problems
