"""The section of the doctor's page about problems: a table by kind, and thumbnails."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import PurePosixPath

from boxcrew.data.checks.box_repair import Box
from boxcrew.data.checks.problem import ACTIONS, Problem, ProblemKind
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.data.images.reading import IMAGE_SUFFIXES, read_image
from boxcrew.report.doctor.charts import LOST
from boxcrew.report.doctor.markup import Html, element, join
from boxcrew.report.doctor.thumbnails import Frame, Thumbnail, read_partial_image, render_figures

_NAMED = 4  # problems of a kind that the table lists
_THUMBNAILS, _THUMBNAILS_OF_A_KIND = 20, 3
_NUMBER = r"\s*(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*"
_BOX = re.compile(rf"\[{_NUMBER},{_NUMBER},{_NUMBER},{_NUMBER}\]")
_CUT: frozenset[ProblemKind] = frozenset({"truncated-image", "unreadable-image"})

MEANINGS: dict[ProblemKind, str] = {
    "missing-file": "Missing image",
    "not-an-image": "File that is not an image",
    "unreadable-image": "Damaged image",
    "truncated-image": "Image cut short",
    "image-bomb": "Image of too many pixels",
    "exif-rotation": "Image turned by EXIF",
    "size-mismatch": "Annotation with another image size",
    "image-frames": "Image of several frames or pages",
    "unreadable-annotation": "Annotation that cannot be read",
    "xml-bomb": "Annotation that is an XML bomb",
    "xml-external-entity": "Annotation that refers to other files",
    "path-escape": "Path that leaves the data folder",
    "empty-annotation": "Image without any object",
    "image-without-annotation": "Image without annotation",
    "annotation-without-image": "Annotation without image",
    "ambiguous-image": "Image name that several files have",
    "several-annotations": "Image annotated several times",
    "not-a-box": "Shape that has no box",
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
    "box-derived": "Box derived from another shape",
    "label-confidence": "Confidence that is not used",
    "cause": "Cause of many problems",
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
        return element("p", "Nothing: every file could be read, and every box is inside its image.")
    by_kind: dict[ProblemKind, list[Problem]] = defaultdict(list)
    for problem in source.problems:
        by_kind[problem.kind].append(problem)
    groups = sorted(by_kind.values(), key=lambda group: (min(map(_severity, group)), -len(group)))
    names = (element("th", name, scope="col") for name in ("what", "how many", "what was done", "where"))
    head, body = element("thead", element("tr", *names)), element("tbody", *map(_row, groups))
    text = (
        "Nothing was changed on disk. Repairs are made in memory only; what is left out is used neither for "
        "training nor for measuring; what is noted is used as it is."
    )
    table = element("table", head, body, class_="kinds")
    return join(element("p", text, class_="note"), table, _gallery(source, groups, workers=workers))


def _severity(problem: Problem) -> int:
    """Return the place of a problem in the table: the lower, the more important."""
    return 0 if problem.kind == "cause" else {"left out": 1, "repaired": 2, "noted": 3}[problem.action]


def _row(problems: Sequence[Problem]) -> Html:
    """Return the row of the table about problems of one kind."""
    counts, kind = Counter(problem.action for problem in problems), problems[0].kind
    done = []
    for action in (action for action in ACTIONS if counts[action]):
        text = action if len(counts) == 1 else f"{counts[action]} {action}"
        done.append(element("div", text, class_="left" if action == "left out" else None))
    listed = [element("li", element("code", each.where), f" {each.message}") for each in problems[:_NAMED]]
    if len(problems) > _NAMED:
        listed.append(element("li", f"and {len(problems) - _NAMED:,} more, in doctor.json", class_="note"))
    return element(
        "tr",
        element("td", MEANINGS[kind], element("code", kind)),
        element("td", f"{len(problems):,}", class_="number"),
        element("td", *done, class_="done"),
        element("td", element("ul", *listed)),
    )


def _gallery(source: Source, groups: Sequence[Sequence[Problem]], *, workers: int) -> Html:
    """Show a few problems of each kind that an image explains better than words."""
    records: dict[str, list[Record]] = defaultdict(list)  # by the names of their files
    for record in chain.from_iterable(source.splits.values()):
        records[PurePosixPath(record.key).stem].append(record)
    turns: list[tuple[int, Thumbnail]] = []  # the first of every kind comes before the second of any
    for problems in groups:
        by_file = {problem.file: problem for problem in reversed(problems)}
        thumbnails = (_thumbnail(source, records, problem) for problem in reversed(by_file.values()))
        turns += enumerate(islice(filter(None, thumbnails), _THUMBNAILS_OF_A_KIND))
    chosen = [thumbnail for _, thumbnail in sorted(turns, key=lambda entry: entry[0])[:_THUMBNAILS]]
    figures = render_figures(chosen, workers=workers)
    if not any(figures):
        return Html("")
    return join(element("h3", "Some of them"), element("div", *figures, class_="gallery"))


def _thumbnail(source: Source, records: Mapping[str, Sequence[Record]], problem: Problem) -> Thumbnail | None:
    """Return the image that a problem is about, with its boxes; None if there is none, or several may be."""
    file, path = PurePosixPath(problem.file), source.root / problem.file
    candidates = records.get(file.stem, ())
    frames: tuple[Frame, ...] = ()
    if problem.kind in _CUT:
        read = partial(read_partial_image, path)
    elif file.suffix.lower() in IMAGE_SUFFIXES and path.is_file():
        read = partial(read_image, path)
    elif len(candidates) == 1 and file.suffix in {".xml", ".txt", ".json"}:
        read = partial(source.read, candidates[0])
        labeled = (Frame(box=tuple(box), color=LOST) for box in candidates[0].target.boxes.tolist())
        frames = tuple(Frame(box=box, color=LOST, dashed=True) for box in _boxes(problem)) or tuple(labeled)
    else:
        return None
    where = f" {file.name}{problem.at and f', {problem.at}'} ({problem.action})"
    caption = element("figcaption", element("b", MEANINGS[problem.kind]), where)
    alt = f"{problem.file}: {problem.message}"
    return Thumbnail(read=read, alt=alt, frames=frames, side=240, caption=caption)


def _boxes(problem: Problem) -> Iterator[Box]:
    """Yield the box that the problem is about, if any, in pixels of the image."""
    match = _BOX.fullmatch(problem.value)
    if problem.kind.startswith("box-") and match:
        x0, y0, x1, y1 = map(float, match.groups())
        yield x0, y0, x1, y1
