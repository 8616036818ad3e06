"""What people would rather look at: batches, predictions, histograms and curves."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from boxcrew.core.types import Image
from boxcrew.data.images.drawing import grid
from boxcrew.data.images.reading import write_image
from boxcrew.evaluate.evaluation import Evaluation
from boxcrew.nets.layers import eval_mode
from boxcrew.tasks.base import ImageSheets, Task, TaskData
from boxcrew.train.config import SummariesConfig
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer
from boxcrew.train.output.best_effort import BestEffort
from boxcrew.train.output.tensorboard import TensorBoardLog

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

COLUMNS = 4
GAP = 8  # pixels
FILES = {
    "train/after_augmentation": "train_batch0.jpg",
    "val/labels": "val_batch0_labels.jpg",
    "val/predictions": "val_batch0_pred.jpg",
    "val/made": "made.jpg",
}
"""Sheets that are also written to plots/; the others only TensorBoard shows."""


class Pictures(Hook):
    """Draws the first batch, and what each examination found."""

    name = "pictures"

    def __init__(
        self,
        folder: Path,
        config: SummariesConfig,
        task_data: TaskData,
        *,
        board: TensorBoardLog,
        files: BestEffort,
    ) -> None:
        self._folder = folder
        self._config = config
        self._subject = task_data
        self._board = board
        self._files = files

    def after_step(self, trainer: Trainer, report: StepReport) -> None:  # noqa: ARG002
        if trainer.step != 1 or trainer.batch is None or trainer.batch.is_blank:
            return
        if self._config.images:
            self._show(self._subject.draw_batch(trainer.batch, self._config.images), step=1)
        if self._config.graph:
            task = on_cpu(trainer.learnt())
            inputs = task.network_inputs(trainer.batch.select([0]))
            with eval_mode(task):  # being looked at must not move the BatchNorms' statistics
                self._board.show(lambda writer: writer.add_graph(task.network, inputs))

    def on_result(self, trainer: Trainer, evaluation: Evaluation, is_best: bool) -> None:  # noqa: ARG002, FBT001
        if self._config.images:
            self._show(self._subject.draw_detections(evaluation, self._config.images), step=trainer.step)
        self._board.show(lambda writer: evaluation.show(writer, trainer.step))
        if self._config.histograms and self._board.is_open:
            task = on_cpu(trainer.learnt())
            outputs = _activations(trainer, task)
            self._board.show(lambda writer: _add_histograms(writer, trainer.step, task, outputs))

    def _show(self, sheets: ImageSheets, *, step: int) -> None:
        for name, images in sheets.items():
            # One that is a sheet by itself stays as it is, to the pixel.
            sheet = (
                images[0] if len(images) == 1 else grid(images, columns=min(COLUMNS, len(images)), gap=GAP)
            )
            self._board.show(partial(_add_image, name=name, sheet=sheet, step=step))
            if name in FILES:
                self._files.write(f"plots/{FILES[name]}", partial(self._store, FILES[name], sheet))

    def _store(self, file: str, sheet: Image) -> None:
        (self._folder / "plots").mkdir(exist_ok=True)
        write_image(self._folder / "plots" / file, sheet)


def _add_image(writer: SummaryWriter, *, name: str, sheet: Image, step: int) -> None:
    writer.add_image(name, sheet, step, dataformats="HWC")


def on_cpu(task: Task) -> Task:
    """Accelerators have better to do than summaries."""
    devices = {parameter.device.type for parameter in task.parameters()}
    return task if devices <= {"cpu"} else copy.deepcopy(task).cpu()


def _add_histograms(writer: SummaryWriter, step: int, task: Task, outputs: Mapping[str, Tensor]) -> None:
    for name, parameter in task.named_parameters():
        writer.add_histogram(f"parameters/{name}", parameter.detach().float().cpu(), step)
    for name, output in outputs.items():
        writer.add_histogram(f"activations/{name}", output, step)
        writer.add_scalar(f"sparsity/{name}", float((output == 0).float().mean()), step)


def _activations(trainer: Trainer, task: Task) -> Mapping[str, Tensor]:
    """Outputs of the network's parts (two levels deep) for a few samples, in evaluation mode."""
    if trainer.batch is None:
        return {}
    inputs = tuple(value[:4] for value in task.network_inputs(trainer.batch))
    parts = {name: part for name, part in task.network.named_modules() if name and name.count(".") <= 1}
    outputs: dict[str, Tensor] = {}

    def keep(name: str) -> object:
        def hook(module: nn.Module, given: object, output: object) -> None:  # noqa: ARG001
            if isinstance(output, Tensor):
                outputs[name] = output.detach().float().cpu()

        return hook

    handles = [part.register_forward_hook(keep(name)) for name, part in parts.items()]
    try:
        with torch.no_grad(), eval_mode(task):
            task.network(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return outputs
