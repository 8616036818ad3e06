"""The files of a comparison: table, scatter, the same images as each detector sees them, and a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from boxcrew.api import Detector
from boxcrew.compare.rows import Row, short_table, table
from boxcrew.core.errors import DataError
from boxcrew.core.files import write_json, write_text
from boxcrew.core.types import Image
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import open_source
from boxcrew.data.images.drawing import draw_boxes, grid
from boxcrew.data.images.reading import verify_image, write_image
from boxcrew.report.compare import compare_page
from boxcrew.report.plots.compare import plot_scatter
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.stored_settings import stored_settings

_SHOWN = 4  # images
_GAP = 8  # pixels between them


def write_results(rows: Sequence[Row], folder: Path, screen: Screen, *, warning: str) -> dict[str, object]:
    """Write all files of a comparison, print its table, and return it as JSON values."""
    columns, cells = table(rows)
    tree: dict[str, object] = {"rows": [row.tree() for row in rows], "warning": warning}
    write_json(folder / "compare.json", tree)
    write_text(folder / "compare.md", markdown(columns, cells))
    write_text(folder / "compare.csv", _csv(columns, cells))
    screen.table("comparison", *short_table(rows))
    metric = next(iter(rows[0].scores))
    plot_scatter(
        [(row.name, row.total_milliseconds, row.scores[metric] or 0.0) for row in rows],
        folder / "scatter.png",
        metric=metric,
    )
    pictures = [folder / "scatter.png"]
    if rows[0].task == "detection":
        try:
            write_image(folder / "photos.jpg", photos(rows, screen))
            pictures.append(folder / "photos.jpg")
        except DataError as error:
            screen.warn(f"no picture of the same photos: {error.message}")
    write_text(
        folder / "index.html", compare_page(columns, cells, pictures, names=_legend(rows), warning=warning)
    )
    if warning:
        screen.warn(warning)
    screen.info(f"comparison: {folder / 'index.html'} (compare.md, compare.csv, compare.json)")
    return tree


def _is_readable(record: Record) -> bool:
    if record.path is None:  # drawn
        return True
    try:
        verify_image(record.path)
    except DataError:
        return False
    return True


def _legend(rows: Sequence[Row]) -> str:
    return "columns: labels, then " + ", ".join(row.name for row in rows)


def markdown(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [columns, ["---"] * len(columns), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _csv(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([columns, *cells])
    return file.getvalue()


def photos(rows: Sequence[Row], screen: Screen) -> Image:
    """Return a sheet with a row for each of a few images: its labels, then what each detector finds."""
    config = stored_settings(Path(rows[0].folder), screen.warn)
    source = open_source(
        config.data.path, format=config.data.format, seed=config.seed, options=config.data.box_options()
    )
    split = source.split(config.data.val)
    records = [record for record in split if len(record.target) and _is_readable(record)]
    if not records:
        raise DataError(f"{config.data.path}: no photo of {config.data.val} with objects can be read")
    records = records[:: max(1, len(records) // _SHOWN)][:_SHOWN]
    images = [source.read(record) for record in records]
    labels = [
        draw_boxes(image, record.target.boxes, record.target.labels, source.classes)
        for image, record in zip(images, records, strict=True)
    ]
    plotted = [_plots(row, images) for row in rows]
    columns = [labels, *plotted]
    cells = [column[i] for i in range(len(images)) for column in columns]
    return grid(cells, columns=len(columns), gap=_GAP)


def _plots(row: Row, images: Sequence[Image]) -> list[Image]:
    """Return what a detector finds with the scores that suit it: those of SVMs are no probabilities."""
    shown = {} if row.threshold is None else {"score": row.threshold}
    return [result.plot() for result in Detector.load(row.folder).predict(images, **shown)]
