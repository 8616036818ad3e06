"""The command `boxcrew data` for data sets whose samples have one label each, or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from boxcrew.cli.output import require_new
from boxcrew.core.errors import UsageError
from boxcrew.data.detection.source import SOURCES
from boxcrew.data.examples.example_set import EXAMPLE_FORMATS, ExampleOptions, ExampleSet, open_examples
from boxcrew.data.images.drawing import grid
from boxcrew.data.images.reading import write_image
from boxcrew.data.loading.collate import as_tensor
from boxcrew.tasks.drawing import draw_examples
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.data import say_problems

COLUMNS, IMAGES = 8, 64  # of a contact sheet


def holds_samples(path: str, format: str) -> bool:
    """Tell whether it is such a data set, and not one of images with boxes, whose crops are samples too."""
    if format != "auto":
        return format in EXAMPLE_FORMATS.names() and format not in SOURCES.names()
    folder = Path(path)
    if not folder.exists():
        return path in EXAMPLE_FORMATS.names()
    if any(SOURCES.get(name).detect(folder) for name in SOURCES.names()):
        return False
    return any(EXAMPLE_FORMATS.get(name).detect(folder) for name in EXAMPLE_FORMATS.names())


def show_samples(
    path: str, format: str, wanted: ExampleOptions, *, out: Path | None, screen: Screen
) -> dict[str, Any]:
    opened = open_examples(path, wanted, format=format)
    report = opened.report()
    names = list(opened.splits)
    rows = [("examples", *(str(report["splits"][name]["examples"]) for name in names))]
    rows += [
        (label, *(str(report["splits"][name]["by_class"][label]) for name in names))
        for label in opened.classes
    ]
    shape = " x ".join(map(str, opened.shape))
    screen.table(f"{opened.root} ({opened.format}): {opened.kind} of {shape}", ("by class", *names), rows)
    say_problems(opened.problems, screen, rest="--json names all")
    if out is not None:
        _write_sheet(opened, out)
        screen.say(f"contact sheet: {out}")
    return report


def _write_sheet(opened: ExampleSet, out: Path) -> None:
    if opened.kind != "pictures":
        raise UsageError(f"out={out}: {opened.kind} cannot be drawn", advice="leave out= out")
    require_new(out)
    train = opened.split("train").subset(IMAGES)
    samples = train.fetch(range(len(train)))
    drawn = draw_examples(as_tensor(samples.inputs), samples.labels, opened.classes)
    write_image(out, grid(drawn, columns=COLUMNS, gap=8))
