"""Writes a detector's precision-recall curves to TensorBoard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from boxcrew.evaluate.detection.metric import DetectionReport

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def show_curves(writer: SummaryWriter, report: DetectionReport, step: int) -> None:
    """Write a curve over score thresholds for each class that has objects."""
    curves = report.curves
    for score, precision, recall in zip(report.classes, curves.precision_at, curves.recall_at, strict=True):
        if precision is None or recall is None:
            continue
        num_right = np.rint(np.array(recall) * score.num_objects)
        num_found = np.divide(
            num_right, precision, out=np.zeros_like(num_right), where=np.array(precision) > 0
        )
        writer.add_pr_curve_raw(
            f"PR/{score.name}",
            true_positive_counts=num_right,
            false_positive_counts=np.rint(np.maximum(num_found - num_right, 0)),
            true_negative_counts=np.zeros_like(num_right),
            false_negative_counts=score.num_objects - num_right,
            precision=np.array(precision),
            recall=np.array(recall),
            global_step=step,
            num_thresholds=len(precision),
        )
