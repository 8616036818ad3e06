"""The plots of a run directory, drawn from its files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from boxcrew.core.errors import DataError
from boxcrew.evaluate.classification import ClassificationReport
from boxcrew.evaluate.detection.types import DetectionReport
from boxcrew.evaluate.evaluation import UNDEFINED
from boxcrew.report.plots import classification, detection
from boxcrew.report.plots.training import plot_results

_PLOTS: Mapping[str, tuple[type, Mapping[str, Callable[[Any, Path], None]]]] = {
    "calibration": (ClassificationReport, classification.PLOTS),
    "curves": (DetectionReport, detection.PLOTS),
}
"""By a key that only this kind of report has: its type, and its plots by file name."""


def write_plots(run_dir: Path) -> list[Path]:
    """Draw `metrics.jsonl` and `evaluation.json` of the run, if they exist, into `plots/`. Return the files.

    A file that cannot be read is an error.
    """
    folder, written = run_dir / "plots", []
    if (metrics := run_dir / "metrics.jsonl").exists():
        written.append(folder / "results.png")
        plot_results(_read_rows(metrics), written[0])
    if (evaluation := run_dir / "evaluation.json").exists():
        written += _draw_evaluation(evaluation, folder)
    return written


def _draw_evaluation(file: Path, folder: Path) -> list[Path]:
    """Draw an evaluation; which plots depends on its task."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        numbers = data["numbers"].items()  # every evaluation has them
        data["numbers"] = {name: UNDEFINED if value is None else value for name, value in numbers}
        kind, plots = next((_PLOTS[key] for key in _PLOTS if key in data), (dict, {}))
        report: Any = TypeAdapter(kind).validate_python(data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = f"{file}: not an evaluation: {str(error).partition(chr(10))[0]}"
        raise DataError(problem, advice="evaluate the run again with `boxcrew val`") from error
    for name, plot in plots.items():
        plot(report, folder / name)
    return [folder / name for name in plots]


def _read_rows(file: Path) -> list[dict[str, Any]]:
    lines = file.read_text(encoding="utf-8").splitlines()
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number == len(lines):
                break  # the last line of a killed or running training may be incomplete
            problem = f"{file}:{number}: not a line of JSON: {line[:60]!r}"
            raise DataError(problem, advice="remove the line") from error
    return rows
