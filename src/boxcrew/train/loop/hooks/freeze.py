"""Frozen parameters: those that never learn, and those that learn from some fraction of the run on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from boxcrew.core.errors import UsageError
from boxcrew.core.torch_tools.batch_norm import is_batch_norm
from boxcrew.tasks.base import Task
from boxcrew.train.init import matching
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer


class Freeze(Hook):
    """Trains the parameters that `trainable` matches, and more from the fractions of the run in `unfreeze`.
    Frozen layers build no graph, and their BatchNorms keep their statistics. If `norms_learn` is false, all
    BatchNorms do.
    """

    name = "freeze"

    def __init__(
        self,
        task: Task,
        *,
        trainable: Sequence[str],
        unfreeze: Mapping[float, Sequence[str]],
        norms_learn: bool = True,
    ) -> None:
        self._norms_learn = norms_learn
        names = [name for name, _ in task.named_parameters()]
        self._stages = [(0.0, matching(names, trainable, "trainable"))]
        for fraction, patterns in sorted(unfreeze.items()):
            self._stages.append((fraction, matching(names, patterns, "unfreeze")))
        for phase in task.phases:
            if not any(task.learns_in(phase, name) for name in self._stages[0][1]):
                where = f" in the phase {phase!r}" if len(task.phases) > 1 else ""
                raise UsageError(
                    f"trainable: nothing would learn{where}",
                    advice="let trainable= match some parameters that learn, or *",
                )
        self.never_learn = set(names).difference(*(learning for _, learning in self._stages))
        self._applied = 0

    def begin(self, trainer: Trainer) -> None:
        self._applied = self.set_learning(trainer.task, trainer.progress.fraction)

    def after_rollback(self, trainer: Trainer) -> None:
        self.begin(trainer)

    def after_step(self, trainer: Trainer, report: StepReport) -> None:  # noqa: ARG002
        if self._applied < len(self._stages) and self._stages[self._applied][0] <= trainer.progress.fraction:
            self.begin(trainer)

    def set_learning(self, task: Task, fraction: float) -> int:
        """Unfreeze what is due at that fraction of the run, and freeze the rest; return the due stages."""
        due = [names for start, names in self._stages if start <= fraction]
        learning = set[str]().union(*due)
        for name, parameter in task.named_parameters():
            parameter.requires_grad = name in learning
        set_train_mode(task, norms_learn=self._norms_learn)
        return len(due)


def set_train_mode(task: nn.Module, *, norms_learn: bool = True) -> None:
    """Set training mode, except for BatchNorms with frozen parameters, whose statistics belong to those. If
    `norms_learn` is false, all BatchNorms are in evaluation mode.
    """
    task.train()
    for module in task.modules():
        if is_batch_norm(module):
            learns = [parameter.requires_grad for parameter in module.parameters()]
            # One without parameters cannot be frozen by name.
            module.train(norms_learn and (any(learns) or not learns))
