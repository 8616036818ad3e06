"""Summaries to look at: images of batches and predictions, histograms, curves and the graph."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from boxcrew.data.images.drawing import grid
from boxcrew.data.images.reading import write_image
from boxcrew.evaluate.evaluation import Evaluation
from boxcrew.nets.layers import eval_mode
from boxcrew.tasks.base import Task
from boxcrew.tasks.data import EvalData, ImageSheets
from boxcrew.train.config import SummariesConfig
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer
from boxcrew.train.output.best_effort import BestEffort
from boxcrew.train.output.tensorboard import TensorBoardLog

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FILES = {
    "train/after_augmentation": "train_batch0.jpg",
    "train/proposals": "train_batch_proposals.jpg",
    "val/labels": "val_batch0_labels.jpg",
    "val/predictions": "val_batch0_pred.jpg",
    "val/made": "made.jpg",
}
"""The image sheets that are also written to plots/; the others are only in TensorBoard."""


@dataclass(frozen=True, eq=False)
class ImageSummaries(Hook):
    """Draws the first batch and the results of each evaluation."""

    name = "images"

    folder: Path
    config: SummariesConfig
    task_data: EvalData
    tensorboard: TensorBoardLog
    files: BestEffort

    def after_step(self, trainer: Trainer, report: StepReport) -> None:  # noqa: ARG002
        if trainer.step != 1 or trainer.batch is None or trainer.batch.is_blank:
            return
        if self.config.images:
            self._show(self.task_data.render_batch(trainer.batch, self.config.images), step=1)
        if self.config.graph:
            task = on_cpu(trainer.eval_copy())
            inputs = task.network_inputs(trainer.batch.select([0]))
            with eval_mode(task):  # tracing must not update the statistics of BatchNorms
                self.tensorboard.show(lambda writer: writer.add_graph(task.network, inputs))

    def on_result(self, trainer: Trainer, evaluation: Evaluation, is_best: bool) -> None:  # noqa: ARG002, FBT001
        if self.config.images:
            self._show(self.task_data.render_predictions(evaluation, self.config.images), step=trainer.step)
            self._show_inside(trainer)
        self.tensorboard.show(lambda writer: evaluation.show(writer, trainer.step))
        if self.config.histograms and self.tensorboard.is_open:
            task = on_cpu(trainer.eval_copy())
            outputs = _activations(trainer, task)
            self.tensorboard.show(lambda writer: _add_histograms(writer, trainer.step, task, outputs))

    def _show_inside(self, trainer: Trainer) -> None:
        if trainer.batch is None or trainer.batch.is_blank:
            return
        task = on_cpu(trainer.eval_copy())
        with eval_mode(task):
            sheets = self.task_data.render_inside(task, trainer.batch, self.config.images)
        self._show(sheets, step=trainer.step)

    def _show(self, sheets: ImageSheets, *, step: int) -> None:
        for name, images in sheets.items():
            sheet = images[0]  # a single image stays the same to the pixel
            if len(images) != 1:
                sheet = grid(images, columns=min(4, len(images)), gap=8)
            self.tensorboard.add_image(name, sheet, step)
            if name in FILES:
                with self.files.writing(f"plots/{FILES[name]}"):
                    (self.folder / "plots").mkdir(exist_ok=True)
                    write_image(self.folder / "plots" / FILES[name], sheet)


def on_cpu(task: Task) -> Task:
    """Return the task, or a copy of it, on the CPU: accelerators have better to do than summaries."""
    devices = {parameter.device.type for parameter in task.parameters()}
    return task if devices <= {"cpu"} else copy.deepcopy(task).cpu()


def _add_histograms(writer: SummaryWriter, step: int, task: Task, outputs: Mapping[str, Tensor]) -> None:
    for name, parameter in task.named_parameters():
        writer.add_histogram(f"parameters/{name}", parameter.detach().float().cpu(), step)
    for name, output in outputs.items():
        writer.add_histogram(f"activations/{name}", output, step)
        writer.add_scalar(f"sparsity/{name}", float((output == 0).float().mean()), step)


def _activations(trainer: Trainer, task: Task) -> Mapping[str, Tensor]:
    """Return outputs of the network's modules, two levels deep, for a few samples in evaluation mode."""
    if trainer.batch is None:
        return {}
    inputs = tuple(value[:4] for value in task.network_inputs(trainer.batch))
    modules = {name: m for name, m in task.network.named_modules() if name and name.count(".") <= 1}
    outputs: dict[str, Tensor] = {}

    def keep(name: str, output: object) -> None:
        if isinstance(output, Tensor):
            outputs[name] = output.detach().float().cpu()

    with ExitStack() as hooks, torch.no_grad(), eval_mode(task):
        for name, module in modules.items():
            handle = module.register_forward_hook(lambda _, __, output, name=name: keep(name, output))
            hooks.callback(handle.remove)
        task.network(*inputs)
    return outputs
