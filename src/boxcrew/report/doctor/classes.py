"""The sections of the doctor's page about classes: how many boxes of each, and what they look like."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, cycle, islice, starmap

import numpy as np

from boxcrew.data.checks.box_repair import Box
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.data.detection.statistics import SplitStatistics
from boxcrew.report.doctor.charts import bar, key, legend
from boxcrew.report.doctor.markup import Html, element, join
from boxcrew.report.doctor.thumbnails import Frame, Thumbnail, render_figures
from boxcrew.report.plots.style import SERIES, class_hex

_MAX_THUMBNAILS = 160  # on a page
_MOST, _FEWEST = 8, 2  # thumbnails of one class
_FEW_CLASSES = 12  # up to which each class has a row of larger thumbnails
_MAX_CLASSES = 80  # that are shown

Object = tuple[Record, Box]


def classes_section(statistics: Mapping[str, SplitStatistics], classes: Iterable[str]) -> Html:
    """Return a bar for each class, the commonest first, with one piece for each split."""
    totals = {name: sum(split.boxes_by_class[name] for split in statistics.values()) for name in classes}
    order = sorted(totals, key=lambda name: -totals[name])
    most = max(1, *totals.values())
    rows = [_class_row(name, statistics, most) for name in order]
    entries = zip(cycle(SERIES), starmap(_split_text, statistics.items()), strict=False)
    names = [element("th", name, scope="col") for name in ("class", "boxes")]
    names += [element("th", split, scope="col", class_="number") for split in statistics]
    header = element("thead", element("tr", *names))
    half = len(rows) if len(rows) <= 20 else -(-len(rows) // 2)
    halves = [rows[i : i + half] for i in range(0, len(rows), half)]
    tables = [element("table", header, element("tbody", *part), class_="bars") for part in halves]
    return join(legend(*entries), element("div", *tables, class_="two" if len(halves) > 1 else None))


def _split_text(name: str, numbers: SplitStatistics) -> str:
    empty = f", {numbers.num_empty_images:,} of them without a box" if numbers.num_empty_images else ""
    return f"{name}: {numbers.num_boxes:,} boxes in {numbers.num_images:,} images{empty}"


def _class_row(name: str, statistics: Mapping[str, SplitStatistics], most: int) -> Html:
    counts = [split.boxes_by_class[name] for split in statistics.values()]
    pieces = [(count / most, color) for count, color in zip(counts, cycle(SERIES), strict=False)]
    cells = [element("th", name, scope="row", title=name), element("td", bar(*pieces), class_="bar")]
    cells += [element("td", f"{count:,}", class_="number" if count else "number none") for count in counts]
    return element("tr", *cells)


def samples_section(source: Source, *, workers: int) -> Html:
    """Show objects of each class, from small to large, from different images if there are enough."""
    by_class = _objects(source)
    shown = sorted(by_class, key=lambda label: -len(by_class[label]))[:_MAX_CLASSES]
    num = int(np.clip(_MAX_THUMBNAILS // max(1, len(shown)), _FEWEST, _MOST))
    groups = [[_thumbnail(source, item, label) for item in _choose(by_class[label], num)] for label in shown]
    figures = iter(render_figures([*chain.from_iterable(groups)], workers=workers))
    cards = []
    for label, group in zip(shown, groups, strict=True):
        count = element("small", f"{len(by_class[label]):,}")
        title = element("h3", key(class_hex(label)), source.classes[label], " ", count)
        gallery = element("div", *islice(figures, len(group)), class_="gallery small")
        cards.append(element("div", title, gallery, class_="card"))
    rest = len(by_class) - len(shown)
    note = f" {rest} more classes are not shown." if rest else ""
    return join(
        element("p", f"Each class from small to large, over all splits.{note}", class_="note"),
        element("div", *cards, class_="samples few" if len(shown) <= _FEW_CLASSES else "samples"),
    )


def _objects(source: Source) -> dict[int, list[Object]]:
    """Return the objects of each class, without crowds, which are no single objects."""
    by_class: dict[int, list[Object]] = defaultdict(list)
    for record in chain.from_iterable(source.splits.values()):
        target = record.target.select(~record.target.crowd)
        for label, (x0, y0, x1, y1) in zip(target.labels.tolist(), target.boxes.tolist(), strict=True):
            by_class[label].append((record, (x0, y0, x1, y1)))
    return by_class


def _choose(objects: list[Object], count: int) -> Iterator[Object]:
    """Yield `count` objects over the range of sizes, from different images if possible."""
    ordered = sorted(objects, key=lambda item: (item[1][2] - item[1][0]) * (item[1][3] - item[1][1]))
    used: set[str] = set()
    for group in np.array_split(np.arange(len(ordered)), min(count, len(ordered))):
        middle = len(group) // 2
        candidates = [*group[middle:], *group[:middle]]
        chosen = next((i for i in candidates if ordered[i][0].key not in used), candidates[0])
        used.add(ordered[chosen][0].key)
        yield ordered[chosen]


def _thumbnail(source: Source, item: Object, label: int) -> Thumbnail:
    record, box = item
    frames = (Frame(box=box, color=class_hex(label)),)
    alt = f"{source.classes[label]} in {record.key}"
    return Thumbnail(read=partial(source.read, record), alt=alt, frames=frames, around=box, side=184)
