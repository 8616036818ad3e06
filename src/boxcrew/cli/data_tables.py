"""Tables of what is in a data set."""

from __future__ import annotations

from typing import Any

from boxcrew.cli.output import Output
from boxcrew.core.config import Tree
from boxcrew.data.detection.source import Source
from boxcrew.data.detection.source_report import source_report


def print_counts(source: Source, out: Output) -> dict[str, Any]:
    """Print how many images and boxes there are; return the report about the data set."""
    report = source_report(source)
    title = f"{source.place} ({source.format})"
    say_table(report, title, out, total="images", by_class="boxes_by_class")
    return report


def say_table(report: Tree, title: str, out: Output, *, total: str, by_class: str) -> None:
    splits = report["splits"]
    rows = [(total, *(str(split[total]) for split in splits.values()))]
    rows += [(name, *(str(split[by_class][name]) for split in splits.values())) for name in report["classes"]]
    out.table(title, (by_class.replace("_", " "), *splits), rows)
