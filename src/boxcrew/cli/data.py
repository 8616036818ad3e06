"""The command `boxcrew data`: show, check, convert or pack a data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from boxcrew.cli.data_pack import pack_set, require_outside
from boxcrew.cli.data_tables import print_counts, say_table
from boxcrew.cli.output import Output, parse_settings, require_new
from boxcrew.core.config import Tree, lift
from boxcrew.core.errors import UsageError
from boxcrew.core.storage.address import Url
from boxcrew.core.types import Image
from boxcrew.data.config import BoxOptions
from boxcrew.data.detection.opening import OpenRequest, open_scanned
from boxcrew.data.detection.source import SOURCES, open_source
from boxcrew.data.detection.writers import WRITERS, write_source
from boxcrew.data.examples.example_set import EXAMPLE_FORMATS, ExampleOptions, ExampleSet, open_examples
from boxcrew.data.images.drawing import draw_boxes, grid
from boxcrew.data.images.reading import write_image
from boxcrew.data.loading.collate import as_tensor
from boxcrew.data.stored import local_or_packed
from boxcrew.hardware.probe import usable_cores
from boxcrew.tasks.drawing import draw_examples
from boxcrew.tasks.example_data import ExampleConfig
from boxcrew.train.run.data import print_problems

_SHEET_IMAGES, _SHEET_EXAMPLES = 16, 64  # on a contact sheet


_CONVERT = "boxcrew data convert PATH out=DIR format=voc"


class ConvertConfig(BoxOptions):
    """The settings of `boxcrew data convert PATH`."""

    out: Path
    format: str  # to write
    read_format: str = "auto"
    seed: int = 0


class ShowConfig(BoxOptions):
    """The settings of `boxcrew data PATH`."""

    out: Path | None = None  # file for a contact sheet of training images
    format: str = "auto"
    seed: int = 0
    size: int | None = Field(default=None, ge=8, le=512)  # size, length and label as in training
    length: int = Field(default=128, ge=2)
    label: str | None = None


def data_command(words: list[str], out: Output) -> None:
    names, tree = parse_settings(words, positional=2)
    if not names:
        raise UsageError("data: which data set?", advice=f"boxcrew data PATH, or {_CONVERT}")
    work = {"convert": _convert, "pack": pack_set}.get(names[0], _show)
    out.result(work(names, tree, out))


def _convert(names: list[str], tree: Tree, out: Output) -> dict[str, Any]:
    if len(names) == 1:
        raise UsageError("data convert: which data set?", advice=_CONVERT)
    for key in ("out", "format"):
        if key not in tree:
            formats = ", ".join(WRITERS.names())
            advice = f"{_CONVERT}; formats are {formats}"
            raise UsageError(f"data convert: {key}= is missing", advice=advice)
    config = ConvertConfig.of(lift(tree, "data", BoxOptions.model_fields))
    WRITERS.get(config.format)
    require_outside(config.out, Path(names[1]))
    options = config.box_options()
    source = open_source(names[1], format=config.read_format, seed=config.seed, options=options)
    with out.progress("copying the images") as progress:
        lost = write_source(source, config.out, format=config.format, progress=progress)
    report = print_counts(source, out)
    print_problems((*source.problems, *lost), out, rest="--json names all")
    out.info(f"written: {config.out} ({config.format}); train on it with: boxcrew train data={config.out}")
    return {"out": str(config.out), "format": config.format, **report}


def _show(names: list[str], tree: Tree, out: Output) -> dict[str, Any]:
    if len(names) > 1:
        raise UsageError(f"{names[1]}: not understood", advice=f"boxcrew data PATH, or {_CONVERT}")
    # Training has the same settings in groups, and advice uses its keys.
    tree = lift(lift(tree, "data", ShowConfig.model_fields), "task", ExampleConfig.aliases)
    config = ShowConfig.of(tree)
    if holds_samples(names[0], config.format):
        return _show_samples(names[0], config, out)
    if unused := [name for name in ExampleConfig.aliases if name in tree]:
        raise UsageError(f"{unused[0]}=: has no meaning for images with boxes", advice="leave it out")
    options = config.box_options()
    request = OpenRequest(path=names[0], format=config.format, seed=config.seed, options=options)
    with out.progress("checking the images") as progress:
        source = open_scanned(request, workers=max(1, int(usable_cores())), progress=progress)
    report = print_counts(source, out)
    print_problems(source.problems, out, rest="--json names all")
    if config.out is not None:
        require_new(config.out)
        images = [
            draw_boxes(source.read(record), record.target.boxes, record.target.labels, source.classes)
            for record in source.split("train")[:_SHEET_IMAGES]
        ]
        _write_sheet(images, config.out, out, columns=4)
    return report


def holds_samples(path: str, format: str) -> bool:
    """Tell whether the samples of a data set have one label each, or none. Images with boxes, whose crops are
    samples too, are not such a set.
    """
    if format != "auto":
        return format in EXAMPLE_FORMATS.names() and format not in SOURCES.names()
    folder = local_or_packed(path)
    if isinstance(folder, Url):
        return False
    if not folder.exists():
        return path in EXAMPLE_FORMATS.names()
    if any(SOURCES.get(name).detect(folder) for name in SOURCES.names()):
        return False
    return any(EXAMPLE_FORMATS.get(name).detect(folder) for name in EXAMPLE_FORMATS.names())


def _show_samples(path: str, config: ShowConfig, out: Output) -> dict[str, Any]:
    options = config.model_dump(include={"size", "length", "label", "seed"})
    workers = max(1, int(usable_cores()))
    wanted = ExampleOptions(**options, boxes=config.box_options(), workers=workers)
    opened = open_examples(path, wanted, format=config.format)
    report = opened.report()
    shape = " x ".join(map(str, opened.shape))
    title = f"{opened.root} ({opened.format}): {opened.kind} of {shape}"
    say_table(report, title, out, total="examples", by_class="by_class")
    print_problems(opened.problems, out, rest="--json names all")
    if config.out is not None:
        _write_sheet(_draw_samples(opened, config.out), config.out, out, columns=8)
    return report


def _draw_samples(opened: ExampleSet, file: Path) -> list[Image]:
    if opened.kind != "images":
        raise UsageError(f"out={file}: {opened.kind} cannot be drawn", advice="leave out= out")
    require_new(file)
    train = opened.split("train").subset(_SHEET_EXAMPLES)
    samples = train.fetch(range(len(train)))
    return draw_examples(as_tensor(samples.inputs), samples.labels, opened.classes)


def _write_sheet(images: Sequence[Image], file: Path, out: Output, *, columns: int) -> None:
    write_image(file, grid(images, columns=columns, gap=8))
    out.info(f"contact sheet: {file}")
