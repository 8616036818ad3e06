"""`boxcrew data` of sets whose examples have a label each, or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from boxcrew.core.errors import UsageError
from boxcrew.data.detection.source import SOURCES
from boxcrew.data.examples.example_set import EXAMPLE_FORMATS, ExampleOptions, ExampleSet, open_examples
from boxcrew.data.images.drawing import grid
from boxcrew.data.images.reading import write_image
from boxcrew.data.loading.collate import as_tensor
from boxcrew.tasks.example_drawing import draw_examples
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.data import say_problems

COLUMNS, PICTURES = 8, 64  # of a contact sheet


def holds_examples(path: str, format: str) -> bool:
    """Whether it is such a set, and not one of photos with boxes, of which crops could be examples too."""
    if format != "auto":
        return format in EXAMPLE_FORMATS.names() and format not in SOURCES.names()
    place = Path(path)
    if not place.exists():
        return path in EXAMPLE_FORMATS.names()
    if any(SOURCES.get(name).detect(place) for name in SOURCES.names()):
        return False
    return any(EXAMPLE_FORMATS.get(name).detect(place) for name in EXAMPLE_FORMATS.names())


def look_at_examples(
    path: str, format: str, wanted: ExampleOptions, *, out: Path | None, say: Screen
) -> dict[str, Any]:
    opened = open_examples(path, wanted, format=format)
    report = opened.report()
    names = list(opened.splits)
    rows = [("examples", *(str(report["splits"][name]["examples"]) for name in names))]
    rows += [
        (kind, *(str(report["splits"][name]["by_class"][kind]) for name in names)) for kind in opened.classes
    ]
    shape = " x ".join(map(str, opened.shape))
    say.table(f"{opened.root} ({opened.format}): {opened.kind} of {shape}", ("by class", *names), rows)
    say_problems(opened.problems, say, rest="--json names all")
    if out is not None:
        _write_sheet(opened, out)
        say.say(f"contact sheet: {out}")
    return report


def _write_sheet(opened: ExampleSet, out: Path) -> None:
    if opened.kind != "pictures":
        raise UsageError(f"out={out}: there is nothing to draw of {opened.kind}", advice="leave out= out")
    if out.exists():
        raise UsageError(f"out={out}: exists already", advice="give a file name that is free")
    train = opened.split("train").subset(PICTURES)
    found = train.fetch(range(len(train)))
    drawn = draw_examples(as_tensor(found.inputs), found.labels, opened.classes)
    write_image(out, grid(drawn, columns=COLUMNS, gap=8))
