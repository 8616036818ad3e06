"""Short views of an open data set, for assertions."""

from __future__ import annotations

from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source


def split_sizes(source: Source) -> dict[str, int]:
    return {split: len(records) for split, records in source.splits.items()}


def problem_lines(source: Source) -> str:
    return "\n".join(map(str, source.problems))


def records_by_key(source: Source) -> dict[str, Record]:
    return {record.key: record for records in source.splits.values() for record in records}
