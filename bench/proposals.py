"""Proposals of selective search: their speed on one core and on all, from the store, and what they cover."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.data import open_data
from bench.real_data import real_data
from bench.row import Row, alternate, skipped
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.data.proposals.coverage import proposal_coverage
from boxcrew.data.proposals.methods import SelectiveSearch
from boxcrew.data.proposals.store import compute_proposals
from boxcrew.hardware.probe import usable_cores

SET = "groceries8_voc"
COUNT = 500  # proposals of an image, as the recipes have
SOME = 80  # photos for the speeds
COMMAND = "python -m bench proposals"
METHOD = SelectiveSearch("fast")


def rows(repeats: int = 3) -> list[Row]:
    folder = real_data(SET)
    if folder is None:
        return [skipped(what=f"proposals for `{SET}`", reason=f"no {SET}", command=COMMAND)]
    cores = max(1, int(usable_cores()))
    source = open_data(folder, workers=cores).source
    some = source.records[:SOME]
    alone, together = alternate(
        [lambda: _seconds(source, some, workers=1), lambda: _seconds(source, some, workers=cores)],
        repeats=repeats,
    )
    speed = Row(
        what=f"proposals for photos of 224 px, one core, and {cores}",
        ours=f"{SOME / alone:.1f} photos/s, {SOME / together:.1f} photos/s",
        theirs="aim: 4 photos/s, 1.8 x",
        verdict=f"{'met' if SOME / alone >= 4 else 'missed'}, {alone / together:.2f} x",
        command=COMMAND,
        detail=f"selective search (fast) for {SOME} photos of `{SET}`, decoding included; medians of "
        f"{repeats}, taking turns",
    )
    return [speed, *_stored(source, cores)]


def _seconds(source: Source, records: Sequence[Record], *, workers: int) -> float:
    """Return how long it takes to compute the proposals of records that nothing is known of."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        compute_proposals(records, source, METHOD, count=COUNT, workers=workers, folder=Path(folder))
        return time.monotonic() - start


def _stored(source: Source, cores: int) -> list[Row]:
    """Return the rows about all photos: the time of a second run, and what is covered."""
    with tempfile.TemporaryDirectory() as name:
        records, folder = source.records, Path(name)
        compute_proposals(records, source, METHOD, count=COUNT, workers=cores, folder=folder)
        start = time.monotonic()
        regions = compute_proposals(records, source, METHOD, count=COUNT, workers=cores, folder=folder)
        seconds = time.monotonic() - start
    coverage = proposal_coverage(records, regions)
    return [
        Row(
            what=f"proposals for the {len(records)} photos of `{SET}`, a second time",
            ours=f"{seconds:.2f} s",
            theirs="aim: under 1 s",
            verdict="met" if seconds < 1 else "missed",
            command=COMMAND,
            detail="from the store; one run",
        ),
        Row(
            what=f"boxes of `{SET}` that {coverage.mean_proposals:.0f} proposals an image cover",
            ours=f"{coverage.recall50:.1%} at IoU 0.5, {coverage.recall70:.1%} at 0.7",
            theirs="aim: 97 % at 0.5",
            verdict="met" if coverage.recall50 >= 0.97 else "missed",
            command=COMMAND,
            detail=f"at most {COUNT} of an image; all splits, {coverage.num_objects} objects",
        ),
    ]
