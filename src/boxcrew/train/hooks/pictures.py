"""What people would rather look at: batches, predictions, histograms and curves."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from boxcrew.core.types import Batch, Image
from boxcrew.data.draw import draw_boxes, grid
from boxcrew.data.image import write_image
from boxcrew.data.source import Record
from boxcrew.evaluate.evaluator import Evaluation, Evaluator
from boxcrew.nets.layers import eval_mode
from boxcrew.tasks.base import Task
from boxcrew.train.best_effort import BestEffort
from boxcrew.train.board import Board
from boxcrew.train.config import SummariesConfig
from boxcrew.train.data import RunData
from boxcrew.train.trainer import Hook, StepReport, Trainer

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

COLUMNS = 4
SHOWN_SCORE = 0.3  # predictions below would only clutter a picture


class Pictures(Hook):
    """Draws the first batch before and after augmentation, and what each examination found."""

    name = "pictures"

    def __init__(
        self,
        folder: Path,
        config: SummariesConfig,
        data: RunData,
        evaluator: Evaluator,
        board: Board,
        files: BestEffort,
    ) -> None:
        self._folder = folder
        self._config = config
        self._data = data
        self._evaluator = evaluator
        self._board = board
        self._files = files

    def after_step(self, trainer: Trainer, report: StepReport) -> None:  # noqa: ARG002
        if trainer.step != 1 or trainer.batch is None or trainer.batch.is_blank:
            return
        if self._config.images:
            self._draw_batch(trainer.batch)
        if self._config.graph:
            inputs = trainer.batch.inputs[:1]
            task = on_cpu(trainer.learnt())
            with eval_mode(task):  # being looked at must not move the BatchNorms' statistics
                self._board.show(lambda writer: writer.add_graph(_Heads(task), inputs))

    def on_result(self, trainer: Trainer, evaluation: Evaluation, is_best: bool) -> None:  # noqa: ARG002, FBT001
        if self._config.images:
            self._draw_found(trainer.step, evaluation)
        self._board.show(lambda writer: _add_curves(writer, evaluation, trainer.step))
        if self._config.histograms and self._board.is_open:
            task = on_cpu(trainer.learnt())
            outputs = _activations(trainer, task)
            self._board.show(lambda writer: _add_histograms(writer, trainer.step, task, outputs))

    def _draw_batch(self, batch: Batch) -> None:
        records = {record.key: record for record in self._data.train}
        count = min(self._config.images, len(batch))
        classes = self._data.source.classes
        before = [self._draw_record(records[key]) for key in batch.keys[:count]]
        after = []
        for i in range(count):
            known = batch.targets["labels"][i] >= 0
            image = np.ascontiguousarray(batch.inputs[i].permute(1, 2, 0).numpy())
            boxes, labels = batch.targets["boxes"][i][known], batch.targets["labels"][i][known]
            after.append(draw_boxes(image, boxes.numpy(), labels.numpy(), classes))
        self._show("train/before_augmentation", before, step=1)
        self._show("train/after_augmentation", after, step=1, file="train_batch0.jpg")

    def _draw_record(self, record: Record) -> Image:
        image = self._data.source.read(record)
        return draw_boxes(image, record.target.boxes, record.target.labels, self._data.source.classes)

    def _draw_found(self, step: int, evaluation: Evaluation) -> None:
        classes = self._data.source.classes
        labels, found = [], []
        for one in evaluation.judged[: self._config.images]:
            image = self._evaluator.picture(one)
            labels.append(draw_boxes(image, one.target.boxes, one.target.labels, classes))
            keep = one.found.scores >= SHOWN_SCORE
            seen = [tensor[keep].numpy() for tensor in (one.found.boxes, one.found.labels, one.found.scores)]
            found.append(draw_boxes(image, seen[0], seen[1], classes, seen[2]))
        self._show("val/labels", labels, step=step, file="val_batch0_labels.jpg")
        self._show("val/predictions", found, step=step, file="val_batch0_pred.jpg")

    def _show(self, name: str, images: list[Image], *, step: int, file: str | None = None) -> None:
        sheet = grid(images, columns=min(COLUMNS, len(images)), gap=8)
        self._board.show(lambda writer: writer.add_image(name, sheet, step, dataformats="HWC"))
        if file:
            self._files.write(f"plots/{file}", partial(self._store, file, sheet))

    def _store(self, file: str, sheet: Image) -> None:
        (self._folder / "plots").mkdir(exist_ok=True)
        write_image(self._folder / "plots" / file, sheet)


def on_cpu(task: Task) -> Task:
    """Accelerators have better to do than summaries."""
    devices = {parameter.device.type for parameter in task.parameters()}
    return task if devices <= {"cpu"} else copy.deepcopy(task).cpu()


class _Heads(nn.Module):
    """The task's network alone: what TensorBoard's graph shows."""

    def __init__(self, task: nn.Module) -> None:
        super().__init__()
        self.detector = task.get_submodule("detector")

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        raw: tuple[Tensor, ...] = self.detector(images)
        return raw


def _add_histograms(writer: SummaryWriter, step: int, task: Task, outputs: Mapping[str, Tensor]) -> None:
    for name, parameter in task.named_parameters():
        writer.add_histogram(f"parameters/{name}", parameter.detach().float().cpu(), step)
    for name, output in outputs.items():
        writer.add_histogram(f"activations/{name}", output, step)
        writer.add_scalar(f"sparsity/{name}", float((output == 0).float().mean()), step)


def _activations(trainer: Trainer, task: Task) -> Mapping[str, Tensor]:
    """Outputs of the network's parts (two levels deep) for a few images, in evaluation mode."""
    if trainer.batch is None:
        return {}
    inputs = trainer.batch.inputs[:4]
    detector = task.get_submodule("detector")
    parts = {name: part for name, part in detector.named_modules() if name and name.count(".") <= 1}
    outputs: dict[str, Tensor] = {}

    def keep(name: str) -> object:
        def hook(module: nn.Module, given: object, output: object) -> None:  # noqa: ARG001
            if isinstance(output, Tensor):
                outputs[name] = output.detach().float().cpu()

        return hook

    handles = [part.register_forward_hook(keep(name)) for name, part in parts.items()]
    try:
        with torch.no_grad(), eval_mode(task):
            detector(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return outputs


def _add_curves(writer: SummaryWriter, evaluation: Evaluation, step: int) -> None:
    """PR curves by score threshold, one for each class that has objects."""
    curves = evaluation.report.curves
    for score, precision, recall in zip(
        evaluation.report.classes, curves.precision_at, curves.recall_at, strict=True
    ):
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
