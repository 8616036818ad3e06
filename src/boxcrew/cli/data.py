"""`boxcrew data`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from boxcrew.cli.data_examples import holds_examples, look_at_examples
from boxcrew.cli.output import print_json, screen, settings
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

SHEET_IMAGES = 16


class MakeConfig(Config):
    """`boxcrew data make`."""

    out: Path
    format: str = "voc"  # to write
    read_format: str = "auto"
    seed: int = 0


class LookConfig(Config):
    """`boxcrew data PATH`."""

    out: Path | None = None  # a contact sheet of training images
    format: str = "auto"
    seed: int = 0
    size: int | None = Field(default=None, ge=8, le=512)  # this and the following as training has them
    length: int = Field(default=128, ge=2)
    label: str | None = None

    def wanted(self) -> ExampleOptions:
        workers = max(1, int(usable_cores()))
        return ExampleOptions(
            size=self.size, length=self.length, label=self.label, seed=self.seed, workers=workers
        )


def data_command(words: list[str], *, as_json: bool) -> None:
    places, tree = settings(words, positional=2)
    if not places:
        raise UsageError(
            "data: of which data set?", advice="boxcrew data PATH, or boxcrew data make shelf out=DIR"
        )
    say = screen(as_json=as_json)
    report = _make(places, tree, say) if places[0] == "make" else _look(places, tree, say)
    if as_json:
        print_json(report)


def _make(places: list[str], tree: dict[str, Any], say: Screen) -> dict[str, Any]:
    if "out" not in tree:
        raise UsageError("data make: out= is missing", advice="boxcrew data make shelf out=DIR format=voc")
    config = MakeConfig.of(tree)
    WRITERS.get(config.format)
    source = open_source(
        places[1] if len(places) > 1 else "shelf", format=config.read_format, seed=config.seed
    )
    lost = write_source(source, config.out, format=config.format)
    _say_counts(source, say)
    say_problems((*source.problems, *lost), say, rest="--json names all")
    say.say(f"written: {config.out} ({config.format}); train on it with: boxcrew train data={config.out}")
    return {"out": str(config.out), "format": config.format, **source_report(source)}


def _look(places: list[str], tree: dict[str, Any], say: Screen) -> dict[str, Any]:
    if len(places) > 1:
        raise UsageError(f"{places[1]}: not understood", advice="boxcrew data PATH, or boxcrew data make …")
    tree = _with_short_words(tree)
    config = LookConfig.of(tree)
    if holds_examples(places[0], config.format):
        return look_at_examples(places[0], config.format, config.wanted(), out=config.out, say=say)
    if given := [name for name in ExampleConfig.aliases if name in tree]:
        raise UsageError(f"{given[0]}=: says nothing about images with boxes", advice="leave it out")
    source = open_source(places[0], format=config.format, seed=config.seed)
    with say.progress("looking at the images") as progress:
        source = scan(source, workers=max(1, int(usable_cores())), progress=progress)
    _say_counts(source, say)
    say_problems(source.problems, say, rest="--json names all")
    if config.out is not None:
        _write_sheet(source, config.out)
        say.say(f"contact sheet: {config.out}")
    return source_report(source)


def _with_short_words(tree: Tree) -> Tree:
    """`label` for `task.label` and so on: training takes both, and its advice has the long ones."""
    task = tree.get("task")
    if not isinstance(task, dict) or not task.keys() <= ExampleConfig.aliases.keys():
        return tree
    return task | {name: value for name, value in tree.items() if name != "task"}


def _write_sheet(source: Source, out: Path) -> None:
    if out.exists():
        raise UsageError(f"out={out}: exists already", advice="give a file name that is free")
    pictures = [
        draw_boxes(source.read(record), record.target.boxes, record.target.labels, source.classes)
        for record in source.split("train")[:SHEET_IMAGES]
    ]
    write_image(out, grid(pictures, columns=4, gap=8))


def _say_counts(source: Source, say: Screen) -> None:
    report = source_report(source)
    names = list(report["splits"])
    rows = [("images", *(str(report["splits"][n]["images"]) for n in names))]
    rows += [
        (name, *(str(report["splits"][n]["boxes_by_class"][name]) for n in names)) for name in source.classes
    ]
    say.table(f"{source.root} ({source.format})", ("boxes by class", *names), rows)
