"""What is wrong in a data set, as a part of the doctor's page: a table by kind, and pictures."""

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
from boxcrew.report.doctor.pictures import Frame, Shot, develop, read_what_is_left

_NAMED = 4  # problems of a kind that the table names
_PICTURES, _PICTURES_OF_A_KIND = 20, 3
_NUMBER = r"\s*(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*"
_BOX = re.compile(rf"\[{_NUMBER},{_NUMBER},{_NUMBER},{_NUMBER}\]")
_CUT: frozenset[Kind] = frozenset({"truncated-image", "unreadable-image"})

MEANINGS: dict[Kind, str] = {
    "missing-file": "Image that is not there",
    "not-an-image": "File that is no image",
    "unreadable-image": "Damaged image",
    "truncated-image": "Image cut short",
    "image-bomb": "Image of too many pixels",
    "exif-rotation": "Image turned by EXIF",
    "size-mismatch": "Annotation tells another image size",
    "unreadable-annotation": "Annotation that cannot be read",
    "xml-bomb": "Annotation that is an XML bomb",
    "xml-external-entity": "Annotation that asks for other files",
    "path-escape": "Path that leaves the data folder",
    "empty-annotation": "Image without any object",
    "image-without-annotation": "Image without annotation",
    "annotation-without-image": "Annotation without image",
    "box-malformed": "Box that is not four numbers",
    "box-nan": "Box with a side that is no number",
    "box-empty": "Box without area",
    "box-outside": "Box outside the image",
    "box-swapped": "Box with swapped corners",
    "box-overhang": "Box that reaches out of the image",
    "box-larger-than-image": "Box larger than the image",
    "box-small": "Box too small to be an example",
    "unknown-class": "Class that no list of classes has",
    "class-id-gap": "Class numbers that no class has",
    "duplicate-class": "Two classes of one name",
    "duplicate-id": "Id given twice",
    "duplicate-image": "Image listed twice",
    "leak": "Image in two splits",
    "no-split": "Files that belong to no split",
    "made-split": "Validation split that had to be made",
    "data-yaml": "Entry of data.yaml that is not so",
    "class-empty": "Class without training examples",
    "label-missing": "Example without label",
    "row-malformed": "Row with too few or too many values",
    "value-missing": "Value that is missing or no number",
    "value-unknown": "Value that training has not seen",
    "column-constant": "Column that is the same everywhere",
    "column-numbering": "Column that numbers the rows",
    "column-doubtful": "Column of words that may be no categories",
    "text-unreadable": "Text that cannot be read",
    "text-cut": "Text longer than the limit",
    "text-short": "Text too short for an example",
    "image-resized": "Images of sizes that cannot be taken as they are",
    "lost-flag": "Flag that the format cannot hold",
}


def problems_section(source: Source, *, workers: int) -> Html:
    if not source.problems:
        text = "Nothing: every file could be read, and every box stands in its image."
        return element("p", text)
    by_kind: dict[Kind, list[Problem]] = defaultdict(list)
    for problem in source.problems:
        by_kind[problem.kind].append(problem)
    # What was lost first, then by number.
    order = sorted(by_kind, key=lambda kind: (_rank(by_kind[kind]), -len(by_kind[kind])))
    head = ("what", "how many", "done about it", "where")
    table = element(
        "table",
        element("thead", element("tr", *(element("th", name, scope="col") for name in head))),
        element("tbody", *(_row(kind, by_kind[kind]) for kind in order)),
        class_="kinds",
    )
    intro = element(
        "p",
        "Nothing was changed on disk. What is repaired is so in memory; what is left out is neither trained "
        "nor measured on; what is noted is used as it stands.",
        class_="note",
    )
    return join(intro, table, _pictures(source, [by_kind[kind] for kind in order], workers=workers))


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
    places = [
        element("li", element("code", problem.where), f" {problem.what}") for problem in problems[:_NAMED]
    ]
    if len(problems) > _NAMED:
        places.append(element("li", f"and {len(problems) - _NAMED:,} more, in doctor.json", class_="note"))
    return element(
        "tr",
        element("td", MEANINGS[kind], element("code", kind)),
        element("td", f"{len(problems):,}", class_="number"),
        element("td", *done, class_="done"),
        element("td", element("ul", *places)),
    )


def _class(action: str) -> str | None:
    return "left" if action == "left out" else None


def _pictures(source: Source, groups: Sequence[Sequence[Problem]], *, workers: int) -> Html:
    """A few of each kind that a picture says more about than words."""
    images = _Images(source)
    turns: list[tuple[int, Problem, Shot]] = []  # the first of every kind goes before the second of any
    for problems in groups:
        of_files = {problem.file: problem for problem in reversed(problems)}
        shots = ((problem, images.shot(problem)) for problem in reversed(of_files.values()))
        found = ((problem, shot) for problem, shot in shots if shot is not None)
        turns += [(turn, *one) for turn, one in enumerate(islice(found, _PICTURES_OF_A_KIND))]
    chosen = sorted(turns, key=lambda one: one[0])[:_PICTURES]
    pictures = develop([shot for _, _, shot in chosen], workers=workers)
    figures = [
        element("figure", picture, _caption(problem))
        for (_, problem, _), picture in zip(chosen, pictures, strict=True)
        if picture is not None
    ]
    if not figures:
        return Html("")
    return join(element("h3", "Some of them"), element("div", *figures, class_="gallery"))


def _caption(problem: Problem) -> Html:
    name = PurePosixPath(problem.file).name
    place = f"{name}, {problem.at}" if problem.at else name
    return element("figcaption", element("b", MEANINGS[problem.kind]), f" {place} ({problem.action})")


class _Images:
    """Finds the image that a problem is about, as far as its file tells."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._records: dict[str, list[Record]] = defaultdict(list)
        for record in (record for records in source.splits.values() for record in records):
            self._records[PurePosixPath(record.key).stem].append(record)

    def shot(self, problem: Problem) -> Shot | None:
        file = PurePosixPath(problem.file)
        alt = f"{problem.file}: {problem.what}"
        frames = tuple(Frame(box=box, colour=LOST, dashed=True) for box in _boxes(problem))
        path = self._source.root / problem.file
        if problem.kind in _CUT:
            return Shot(read=partial(read_what_is_left, path), alt=alt, side=240)
        if file.suffix.lower() in IMAGE_SUFFIXES and path.is_file():
            return Shot(read=partial(read_image, path), alt=alt, side=240)
        records = self._records[file.stem]
        if len(records) != 1 or file.suffix not in {".xml", ".txt"}:
            return None
        own = frames or tuple(Frame(box=tuple(box), colour=LOST) for box in records[0].target.boxes.tolist())
        return Shot(read=partial(self._source.read, records[0]), alt=alt, frames=own, side=240)


def _boxes(problem: Problem) -> Iterator[Box]:
    """The box that is to blame, where it is one: in pixels of the image."""
    found = _BOX.fullmatch(problem.value)
    if problem.kind.startswith("box-") and found:
        x0, y0, x1, y1 = map(float, found.groups())
        yield x0, y0, x1, y1
