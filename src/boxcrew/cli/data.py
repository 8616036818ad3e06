"""The command `boxcrew data`: show, check, convert or write a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from boxcrew.cli.data_samples import holds_samples, show_samples
from boxcrew.cli.output import make_screen, parse_settings, print_json, require_new
from boxcrew.core.config import Config, Tree
from boxcrew.core.errors import UsageError
from boxcrew.data.checks.scan import scan
from boxcrew.data.detection.source import Source, open_source
from boxcrew.data.detection.writers import WRITERS, write_source
from boxcrew.data.examples.example_set import ExampleOptions
from boxcrew.data.images.drawing import draw_boxes, grid
from boxcrew.data.images.reading import write_image
from boxcrew.hardware.probe import usable_cores
from boxcrew.tasks.detection import source_report
from boxcrew.tasks.example_data import ExampleConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.data import say_problems

SHEET_IMAGES = 16  # on a contact sheet


class MakeConfig(Config):
    """The settings of `boxcrew data make`."""

    out: Path
    format: str = "voc"  # to write
    read_format: str = "auto"
    seed: int = 0


class ShowConfig(Config):
    """The settings of `boxcrew data PATH`."""

    out: Path | None = None  # file for a contact sheet of training images
    format: str = "auto"
    seed: int = 0
    size: int | None = Field(default=None, ge=8, le=512)  # size, length and label as in training
    length: int = Field(default=128, ge=2)
    label: str | None = None

    def wanted(self) -> ExampleOptions:
        workers = max(1, int(usable_cores()))
        return ExampleOptions(
            size=self.size, length=self.length, label=self.label, seed=self.seed, workers=workers
        )


def data_command(words: list[str], *, as_json: bool) -> None:
    names, tree = parse_settings(words, positional=2)
    if not names:
        raise UsageError(
            "data: which data set?", advice="boxcrew data PATH, or boxcrew data make shelf out=DIR"
        )
    command = _make if names[0] == "make" else _show
    report = command(names, tree, make_screen(as_json=as_json))
    if as_json:
        print_json(report)


def _make(names: list[str], tree: dict[str, Any], screen: Screen) -> dict[str, Any]:
    if "out" not in tree:
        raise UsageError("data make: out= is missing", advice="boxcrew data make shelf out=DIR format=voc")
    config = MakeConfig.of(tree)
    WRITERS.get(config.format)
    source = open_source(names[1] if len(names) > 1 else "shelf", format=config.read_format, seed=config.seed)
    lost = write_source(source, config.out, format=config.format)
    _say_counts(source, screen)
    say_problems((*source.problems, *lost), screen, rest="--json names all")
    screen.say(f"written: {config.out} ({config.format}); train on it with: boxcrew train data={config.out}")
    return {"out": str(config.out), "format": config.format, **source_report(source)}


def _show(names: list[str], tree: dict[str, Any], screen: Screen) -> dict[str, Any]:
    if len(names) > 1:
        raise UsageError(f"{names[1]}: not understood", advice="boxcrew data PATH, or boxcrew data make …")
    tree = _with_short_keys(tree)
    config = ShowConfig.of(tree)
    if holds_samples(names[0], config.format):
        return show_samples(names[0], config.format, config.wanted(), out=config.out, screen=screen)
    if unused := [name for name in ExampleConfig.aliases if name in tree]:
        raise UsageError(f"{unused[0]}=: has no meaning for images with boxes", advice="leave it out")
    source = open_source(names[0], format=config.format, seed=config.seed)
    with screen.progress("checking the images") as progress:
        source = scan(source, workers=max(1, int(usable_cores())), progress=progress)
    _say_counts(source, screen)
    say_problems(source.problems, screen, rest="--json names all")
    if config.out is not None:
        _write_sheet(source, config.out)
        screen.say(f"contact sheet: {config.out}")
    return source_report(source)


def _with_short_keys(tree: Tree) -> Tree:
    """Accept `task.label` for `label` and so on, as training does, whose advice uses the long keys."""
    task = tree.get("task")
    if not isinstance(task, dict) or not task.keys() <= ExampleConfig.aliases.keys():
        return tree
    return task | {name: value for name, value in tree.items() if name != "task"}


def _write_sheet(source: Source, out: Path) -> None:
    require_new(out)
    images = [
        draw_boxes(source.read(record), record.target.boxes, record.target.labels, source.classes)
        for record in source.split("train")[:SHEET_IMAGES]
    ]
    write_image(out, grid(images, columns=4, gap=8))


def _say_counts(source: Source, screen: Screen) -> None:
    report = source_report(source)
    names = list(report["splits"])
    rows = [("images", *(str(report["splits"][n]["images"]) for n in names))]
    rows += [
        (name, *(str(report["splits"][n]["boxes_by_class"][name]) for n in names)) for name in source.classes
    ]
    screen.table(f"{source.root} ({source.format})", ("boxes by class", *names), rows)
