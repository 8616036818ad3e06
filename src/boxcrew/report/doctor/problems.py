"""The section of the doctor's page about problems: a table by kind, and thumbnails."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import PurePosixPath

from boxcrew.data.checks.box_repair import Box
from boxcrew.data.checks.problem import ACTIONS, Kind, Problem
from boxcrew.data.detection.source import Record, Source
from boxcrew.data.images.reading import IMAGE_SUFFIXES, read_image
from boxcrew.report.doctor.charts import LOST
from boxcrew.report.doctor.markup import Html, element, join
from boxcrew.report.doctor.thumbnails import Frame, Thumbnail, read_partial_image, render_thumbnails

_NAMED = 4  # problems of a kind that the table lists
_THUMBNAILS, _THUMBNAILS_OF_A_KIND = 20, 3
_NUMBER = r"\s*(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*"
_BOX = re.compile(rf"\[{_NUMBER},{_NUMBER},{_NUMBER},{_NUMBER}\]")
_CUT: frozenset[Kind] = frozenset({"truncated-image", "unreadable-image"})

MEANINGS: dict[Kind, str] = {
    "missing-file": "Missing image",
    "not-an-image": "File that is not an image",
    "unreadable-image": "Damaged image",
    "truncated-image": "Image cut short",
    "image-bomb": "Image of too many pixels",
    "exif-rotation": "Image turned by EXIF",
    "size-mismatch": "Annotation with another image size",
    "unreadable-annotation": "Annotation that cannot be read",
    "xml-bomb": "Annotation that is an XML bomb",
    "xml-external-entity": "Annotation that refers to other files",
    "path-escape": "Path that leaves the data folder",
    "empty-annotation": "Image without any object",
    "image-without-annotation": "Image without annotation",
    "annotation-without-image": "Annotation without image",
    "box-malformed": "Box that is not four numbers",
    "box-nan": "Box with a side that is not a number",
    "box-empty": "Box without area",
    "box-outside": "Box outside the image",
    "box-swapped": "Box with swapped corners",
    "box-overhang": "Box partly outside the image",
    "box-larger-than-image": "Box larger than the image",
    "box-small": "Box too small to learn from",
    "unknown-class": "Class that is not in the list of classes",
    "class-id-gap": "Class numbers without a class",
    "duplicate-class": "Two classes with one name",
    "duplicate-id": "Id used twice",
    "duplicate-image": "Image listed twice",
    "leak": "Image in two splits",
    "no-split": "Files without a split",
    "made-split": "Validation split made automatically",
    "data-yaml": "Wrong entry in data.yaml",
    "class-empty": "Class without training examples",
    "label-missing": "Example without label",
    "row-malformed": "Row with too few or too many values",
    "value-missing": "Value that is missing or not a number",
    "value-unknown": "Value not seen in training",
    "column-constant": "Column with a single value",
    "column-numbering": "Column that numbers the rows",
    "column-doubtful": "Text column that may not be categories",
    "text-unreadable": "Text that cannot be read",
    "text-cut": "Text longer than the limit",
    "text-short": "Text too short to learn from",
    "image-resized": "Images that must be resized",
    "lost-flag": "Flag that the format cannot store",
}


def problems_section(source: Source, *, workers: int) -> Html:
    if not source.problems:
        text = "Nothing: every file could be read, and every box is inside its image."
        return element("p", text)
    by_kind: dict[Kind, list[Problem]] = defaultdict(list)
    for problem in source.problems:
        by_kind[problem.kind].append(problem)
    # First what was left out, then by count.
    order = sorted(by_kind, key=lambda kind: (_rank(by_kind[kind]), -len(by_kind[kind])))
    head = ("what", "how many", "what was done", "where")
    table = element(
        "table",
        element("thead", element("tr", *(element("th", name, scope="col") for name in head))),
        element("tbody", *(_row(kind, by_kind[kind]) for kind in order)),
        class_="kinds",
    )
    intro = element(
        "p",
        "Nothing was changed on disk. Repairs are made in memory only; what is left out is used neither for "
        "training nor for measuring; what is noted is used as it is.",
        class_="note",
    )
    return join(intro, table, _gallery(source, [by_kind[kind] for kind in order], workers=workers))


def _rank(problems: Sequence[Problem]) -> int:
    severity = {"left out": 0, "repaired": 1, "noted": 2}
    return min(severity[problem.action] for problem in problems)


def _row(kind: Kind, problems: Sequence[Problem]) -> Html:
    counts = Counter(problem.action for problem in problems)
    done = [
        element("div", action if len(counts) == 1 else f"{counts[action]} {action}", class_=_class(action))
        for action in ACTIONS
        if counts[action]
    ]
    listed = [
        element("li", element("code", problem.where), f" {problem.what}") for problem in problems[:_NAMED]
    ]
    if len(problems) > _NAMED:
        listed.append(element("li", f"and {len(problems) - _NAMED:,} more, in doctor.json", class_="note"))
    return element(
        "tr",
        element("td", MEANINGS[kind], element("code", kind)),
        element("td", f"{len(problems):,}", class_="number"),
        element("td", *done, class_="done"),
        element("td", element("ul", *listed)),
    )


def _class(action: str) -> str | None:
    return "left" if action == "left out" else None


def _gallery(source: Source, groups: Sequence[Sequence[Problem]], *, workers: int) -> Html:
    """Show a few problems of each kind that an image explains better than words."""
    images = _Images(source)
    turns: list[tuple[int, Problem, Thumbnail]] = []  # the first of every kind comes before the second of any
    for problems in groups:
        by_file = {problem.file: problem for problem in reversed(problems)}
        pairs = ((problem, images.thumbnail(problem)) for problem in reversed(by_file.values()))
        possible = ((problem, thumbnail) for problem, thumbnail in pairs if thumbnail is not None)
        turns += [(turn, *pair) for turn, pair in enumerate(islice(possible, _THUMBNAILS_OF_A_KIND))]
    chosen = sorted(turns, key=lambda entry: entry[0])[:_THUMBNAILS]
    rendered = render_thumbnails([thumbnail for _, _, thumbnail in chosen], workers=workers)
    figures = [
        element("figure", markup, _caption(problem))
        for (_, problem, _), markup in zip(chosen, rendered, strict=True)
        if markup is not None
    ]
    if not figures:
        return Html("")
    return join(element("h3", "Some of them"), element("div", *figures, class_="gallery"))


def _caption(problem: Problem) -> Html:
    name = PurePosixPath(problem.file).name
    where = f"{name}, {problem.at}" if problem.at else name
    return element("figcaption", element("b", MEANINGS[problem.kind]), f" {where} ({problem.action})")


class _Images:
    """The images that problems are about, found by the names of their files."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._records: dict[str, list[Record]] = defaultdict(list)
        for record in (record for records in source.splits.values() for record in records):
            self._records[PurePosixPath(record.key).stem].append(record)

    def thumbnail(self, problem: Problem) -> Thumbnail | None:
        file = PurePosixPath(problem.file)
        alt = f"{problem.file}: {problem.what}"
        frames = tuple(Frame(box=box, color=LOST, dashed=True) for box in _boxes(problem))
        path = self._source.root / problem.file
        if problem.kind in _CUT:
            return Thumbnail(read=partial(read_partial_image, path), alt=alt, side=240)
        if file.suffix.lower() in IMAGE_SUFFIXES and path.is_file():
            return Thumbnail(read=partial(read_image, path), alt=alt, side=240)
        records = self._records[file.stem]
        if len(records) != 1 or file.suffix not in {".xml", ".txt"}:
            return None
        shown = frames or tuple(Frame(box=tuple(box), color=LOST) for box in records[0].target.boxes.tolist())
        return Thumbnail(read=partial(self._source.read, records[0]), alt=alt, frames=shown, side=240)


def _boxes(problem: Problem) -> Iterator[Box]:
    """Yield the box that the problem is about, if any, in pixels of the image."""
    match = _BOX.fullmatch(problem.value)
    if problem.kind.startswith("box-") and match:
        x0, y0, x1, y1 = map(float, match.groups())
        yield x0, y0, x1, y1
