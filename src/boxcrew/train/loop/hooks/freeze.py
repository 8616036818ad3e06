"""Which parameters learn, and from when on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from torch import nn

from boxcrew.core.errors import UsageError
from boxcrew.core.torch_tools.batch_norm import is_batch_norm
from boxcrew.tasks.base import Task
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer
from boxcrew.train.run.init import matching


class Freeze(Hook):
    """Only what `trainable` matches learns; more joins at the shares of the run that `unfreeze` names.
    Frozen layers build no graph, and their BatchNorms keep their statistics; without `norms_learn` all do.
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
        self._stages += [
            (share, matching(names, patterns, "unfreeze")) for share, patterns in sorted(unfreeze.items())
        ]
        _require_learning(task, self._stages[0][1])
        self.never_learn = set(names).difference(*(learning for _, learning in self._stages))
        self._applied = 0

    def begin(self, trainer: Trainer) -> None:
        self._apply(trainer)

    def went_back(self, trainer: Trainer) -> None:
        self._apply(trainer)

    def after_step(self, trainer: Trainer, report: StepReport) -> None:  # noqa: ARG002
        if self._applied < len(self._stages) and self._stages[self._applied][0] <= trainer.progress.fraction:
            self._apply(trainer)

    def _apply(self, trainer: Trainer) -> None:
        self._applied = self.set_learning(trainer.task, trainer.progress.fraction)

    def set_learning(self, task: Task, fraction: float) -> int:
        """Makes a task learn what is due at that share of the run; gives the number of stages that are."""
        due = [names for share, names in self._stages if share <= fraction]
        learning = set[str]().union(*due)
        for name, parameter in task.named_parameters():
            parameter.requires_grad = name in learning
        set_train_mode(task, norms_learn=self._norms_learn)
        return len(due)


def _require_learning(task: Task, names: Collection[str]) -> None:
    """In every phase of a step, of the parameters of these names."""
    for phase in task.phases:
        if not any(task.learns_in(phase, name) for name in names):
            where = f" in the phase {phase!r}" if len(task.phases) > 1 else ""
            raise UsageError(
                f"trainable: nothing would learn{where}", advice="let it match some parameters that do, or *"
            )


def set_train_mode(task: nn.Module, *, norms_learn: bool = True) -> None:
    """Training mode, but for BatchNorms whose parameters are frozen: their statistics are part of what was
    learnt with them. And for all of them without `norms_learn`.
    """
    task.train()
    for module in task.modules():
        if is_batch_norm(module):
            learns = [parameter.requires_grad for parameter in module.parameters()]
            module.train(
                norms_learn and (any(learns) or not learns)
            )  # one without parameters cannot be frozen by name
