"""The plots of a run directory, drawn from its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from boxcrew.core.errors import DataError
from boxcrew.evaluate.detection.metric import DetectionReport
from boxcrew.report.plots.classification import write_classification_plots
from boxcrew.report.plots.detection import plot_classes, plot_confusion, plot_f1, plot_precision_recall
from boxcrew.report.plots.training import plot_results

_DETECTION_PLOTS = {
    "confusion_matrix.png": plot_confusion,
    "PR_curve.png": plot_precision_recall,
    "F1_curve.png": plot_f1,
    "classes.png": plot_classes,
}


def write_plots(run_dir: Path) -> list[Path]:
    """Draw `metrics.jsonl` and `evaluation.json` of the run, if they exist, into `plots/`. Return the files.

    A file that cannot be read is an error.
    """
    folder = run_dir / "plots"
    written: list[Path] = []
    metrics, evaluation = run_dir / "metrics.jsonl", run_dir / "evaluation.json"
    if metrics.exists():
        plot_results(_read_rows(metrics), folder / "results.png")
        written.append(folder / "results.png")
    if evaluation.exists():
        written += _draw_evaluation(evaluation, folder)
    return written


def _draw_evaluation(file: Path, folder: Path) -> list[Path]:
    """Draw an evaluation; which plots depends on its task."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        data["numbers"]  # every evaluation has them
        if "calibration" in data:
            return write_classification_plots(data, folder)
        report = DetectionReport.from_json(data) if "curves" in data else None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise DataError(
            f"{file}: not an evaluation: {error}", advice="evaluate the run again with `boxcrew val`"
        ) from error
    if report is None:
        return []
    for name, plot in _DETECTION_PLOTS.items():
        plot(report, folder / name)
    return [folder / name for name in _DETECTION_PLOTS]


def _read_rows(file: Path) -> list[dict[str, Any]]:
    lines = file.read_text(encoding="utf-8").splitlines()
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number == len(lines):
                break  # the last line of a killed or running training may be incomplete
            raise DataError(
                f"{file}:{number}: not a line of JSON: {line[:60]!r}", advice="remove the line"
            ) from error
    return rows
