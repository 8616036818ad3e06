"""The sections of the doctor's page about classes: how many boxes of each, and what they look like."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import numpy as np

from boxcrew.core.types import Image
from boxcrew.data.checks.box_repair import Box
from boxcrew.data.detection.source import Record, Source
from boxcrew.data.detection.statistics import SplitStatistics
from boxcrew.report.doctor.charts import bar, key, legend
from boxcrew.report.doctor.markup import Html, element, join
from boxcrew.report.doctor.thumbnails import Frame, Thumbnail, render_thumbnails
from boxcrew.report.plots.style import SERIES, class_hex

_MAX_THUMBNAILS = 160  # on a page
_MOST, _FEWEST = 8, 2  # thumbnails of one class
_FEW_CLASSES = 12  # up to which each class has a row of larger thumbnails
_MAX_CLASSES = 80  # that are shown

Object = tuple[Record, Box]


def classes_section(statistics: Mapping[str, SplitStatistics], classes: Iterable[str]) -> Html:
    """Return a bar for each class, the commonest first, with one piece for each split."""
    splits = list(statistics)
    totals = {name: sum(split.boxes_by_class[name] for split in statistics.values()) for name in classes}
    order = sorted(totals, key=lambda name: -totals[name])
    most = max(1, *totals.values())
    rows = [_class_row(name, statistics, most) for name in order]
    entries = [(_split_color(i), _split_text(*split)) for i, split in enumerate(statistics.items())]
    head = ("class", "boxes", *splits)
    styles = (None, None, *("number" for _ in splits))
    header = element(
        "thead",
        element(
            "tr", *(element("th", name, scope="col", class_=s) for name, s in zip(head, styles, strict=True))
        ),
    )
    halves = [rows] if len(rows) <= 20 else [rows[: -(-len(rows) // 2)], rows[-(-len(rows) // 2) :]]
    tables = [element("table", header, element("tbody", *half), class_="bars") for half in halves]
    return join(legend(*entries), element("div", *tables, class_="two" if len(halves) > 1 else None))


def _split_text(name: str, numbers: SplitStatistics) -> str:
    empty = f", {numbers.num_empty_images:,} of them without a box" if numbers.num_empty_images else ""
    return f"{name}: {numbers.num_boxes:,} boxes in {numbers.num_images:,} images{empty}"


def _split_color(index: int) -> str:
    return SERIES[index % len(SERIES)]


def _class_row(name: str, statistics: Mapping[str, SplitStatistics], most: int) -> Html:
    counts = [split.boxes_by_class[name] for split in statistics.values()]
    pieces = [(count / most, _split_color(i)) for i, count in enumerate(counts)]
    numbers = [element("td", f"{count:,}", class_="number" if count else "number none") for count in counts]
    return element(
        "tr",
        element("th", name, scope="row", title=name),
        element("td", bar(*pieces), class_="bar"),
        *numbers,
    )


def samples_section(source: Source, *, workers: int) -> Html:
    """Show objects of each class, from small to large, from different images if there are enough."""
    by_class = _objects(source)
    shown = sorted(by_class, key=lambda label: -len(by_class[label]))[:_MAX_CLASSES]
    each = int(np.clip(_MAX_THUMBNAILS // max(1, len(shown)), _FEWEST, _MOST))
    thumbnails = [
        (label, _thumbnail(source, item, label)) for label in shown for item in _choose(by_class[label], each)
    ]
    figures: dict[int, list[Html]] = defaultdict(list)
    rendered = render_thumbnails([thumbnail for _, thumbnail in thumbnails], workers=workers)
    for (label, _), markup in zip(thumbnails, rendered, strict=True):
        if markup is not None:
            figures[label].append(element("figure", markup))
    cards = [_card(source.classes[label], label, len(by_class[label]), figures[label]) for label in shown]
    few = len(shown) <= _FEW_CLASSES
    rest = len(by_class) - len(shown)
    note = f" {rest} more classes are not shown." if rest else ""
    return join(
        element("p", f"Each class from small to large, over all splits.{note}", class_="note"),
        element("div", *cards, class_="samples few" if few else "samples"),
    )


def _objects(source: Source) -> dict[int, list[Object]]:
    """Return the objects of each class, without crowds, which are no single objects."""
    by_class: dict[int, list[Object]] = defaultdict(list)
    for record in (record for records in source.splits.values() for record in records):
        target = record.target.select(~record.target.crowd)
        for label, (x0, y0, x1, y1) in zip(target.labels.tolist(), target.boxes.tolist(), strict=True):
            by_class[label].append((record, (x0, y0, x1, y1)))
    return by_class


def _choose(objects: list[Object], count: int) -> Iterator[Object]:
    """Yield `count` objects over the range of sizes, from different images if possible."""
    ordered = sorted(objects, key=lambda item: _area(item[1]))
    used: set[str] = set()
    for group in np.array_split(np.arange(len(ordered)), min(count, len(ordered))):
        middle = len(group) // 2
        candidates = [*group[middle:], *group[:middle]]
        chosen = next((i for i in candidates if ordered[i][0].key not in used), candidates[0])
        used.add(ordered[chosen][0].key)
        yield ordered[chosen]


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _thumbnail(source: Source, item: Object, label: int) -> Thumbnail:
    record, box = item
    read: partial[Image] = partial(source.read, record)
    alt = f"{source.classes[label]} in {record.key}"
    return Thumbnail(
        read=read, alt=alt, frames=(Frame(box=box, color=class_hex(label)),), around=box, side=184
    )


def _card(name: str, label: int, count: int, figures: list[Html]) -> Html:
    title = element("h3", key(class_hex(label)), name, " ", element("small", f"{count:,}"))
    return element("div", title, element("div", *figures, class_="gallery small"), class_="card")
