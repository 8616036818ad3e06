"""What TensorBoard draws of a detector's examination besides numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from boxcrew.evaluate.detection.metric import DetectionReport

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def show_curves(writer: SummaryWriter, report: DetectionReport, step: int) -> None:
    """PR curves by score threshold, one for each class that has objects."""
    curves = report.curves
    for score, precision, recall in zip(report.classes, curves.precision_at, curves.recall_at, strict=True):
        if precision is None or recall is None:
            continue
        found = np.rint(np.array(recall) * score.num_objects)
        wrong = np.divide(found, precision, out=np.zeros_like(found), where=np.array(precision) > 0) - found
        writer.add_pr_curve_raw(
            f"PR/{score.name}",
            true_positive_counts=found,
            false_positive_counts=np.rint(np.maximum(wrong, 0)),
            true_negative_counts=np.zeros_like(found),
            false_negative_counts=score.num_objects - found,
            precision=np.array(precision),
            recall=np.array(recall),
            global_step=step,
            num_thresholds=len(precision),
        )
