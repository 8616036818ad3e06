"""The setup of a run on any replica: its settings, data and task, and the trainer made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from boxcrew.core.errors import UsageError
from boxcrew.core.types import Batch
from boxcrew.data.loading.workers import Workers
from boxcrew.deploy.deployment import Deployment
from boxcrew.plan.plan import Plan
from boxcrew.tasks.base import Task
from boxcrew.tasks.data import EvalData, Loader, LoaderOptions, TaskData, TrainData
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import Checkpoint
from boxcrew.train.loop.guard import Guard
from boxcrew.train.loop.hooks.freeze import Freeze
from boxcrew.train.loop.optim import optimizer_of
from boxcrew.train.loop.schedule import RunLimits, TrainingSchedule
from boxcrew.train.loop.trainer import Hook, Trainer
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning.workload import freeze_for


@dataclass(frozen=True, kw_only=True, eq=False)
class RunSetup:
    """The task, data and settings of a run, before a deployment gives it devices."""

    config: RunConfig
    folder: Path
    task_data: TaskData
    task: Task
    freeze: Freeze
    limits: RunLimits
    screen: Screen
    pause_at: int | None = None  # the step after which the run saves its state and ends for now

    @classmethod
    def of(
        cls, config: RunConfig, plan: Plan, task_data: TaskData, *, task: Task, folder: Path, screen: Screen
    ) -> Self:
        """Set up a run whose steps are those of `plan`."""
        require_measured(config.evaluation.metric, task_data)
        return cls(
            config=config,
            folder=folder,
            task_data=task_data,
            task=task,
            freeze=freeze_for(config, task, norms_learn=plan.batch_norm != "frozen"),
            limits=config.limits(num_samples=task_data.num_train, batch=plan.batch),
            screen=screen,
        )

    def cached_data(self, num_bytes: int) -> TaskData:
        """Return the data with up to `num_bytes` of decoded images kept in shared memory."""
        try:
            return self.task_data.with_cache(num_bytes)
        except OSError as error:  # a limit that cannot be queried in advance
            self.screen.warn(f"no memory for decoded images: {error.strerror}; they are read each time")
            return self.task_data

    def workers(self, plan: Plan, num: int) -> Workers:
        """Return the settings of `num` loader workers."""
        pin_memory = any(clone.device.startswith("cuda") for clone in plan.clones)
        return Workers(num=num, prefetch=self.config.loader.prefetch, pin_memory=pin_memory)

    def loader(
        self, deployment: Deployment, task_data: TrainData, workers: Workers, *, mixed_steps: int | None
    ) -> Loader:
        """Return a loader of this replica's samples of each step. `mixed_steps`: see `LastUnmixed`."""
        options = LoaderOptions(
            batch=deployment.plan.batch,
            seed=self.config.seed,
            workers=workers,
            positions=deployment.positions,
            share_sizes=deployment.share_sizes,
            mixed_steps=mixed_steps,
        )
        return task_data.loader(options)

    def batches(
        self,
        deployment: Deployment,
        task_data: TrainData,
        workers: Callable[[], Workers],
        *,
        mixed_steps: int | None,
    ) -> Callable[[int], Iterator[Batch]]:
        """Return what gives the batches from a step on: this replica's, in the group that there is then."""

        def batches(step: int) -> Iterator[Batch]:
            return self.loader(deployment, task_data, workers(), mixed_steps=mixed_steps).batches(step)

        return batches

    def trainer(
        self,
        deployment: Deployment,
        hooks: Sequence[Hook],
        last_good: Callable[[int | None], Checkpoint | None],
        checkpoint: Checkpoint | None,
    ) -> Trainer:
        """Return a trainer at `checkpoint`, or at the start. Its guard rolls back to `last_good`."""
        optim = self.config.optim
        trainer = Trainer(
            task=self.task,
            deployment=deployment,
            optimizer=optimizer_of(self.task, optim),
            schedule=TrainingSchedule(
                limits=self.limits,
                config=self.config.schedule,
                peak_rate=optim.scaled_rate(deployment.plan.batch),
                clip=optim.clip,
                seed=self.config.seed,
            ),
            hooks=(self.freeze, *hooks),
            guard=Guard(self.config.guard, warn=self.screen.warn, last_good=last_good, deployment=deployment),
        )
        if checkpoint is not None:
            trainer.load(checkpoint)
        return trainer


def require_measured(metric: str, task_data: EvalData) -> None:
    """Raise `UsageError` if the metric that decides the best weights is not measured on this data."""
    if metric not in {"auto", *task_data.metrics}:
        raise UsageError(
            f"evaluation.metric={metric}: not measured on this data",
            advice=f"it has {', '.join(task_data.metrics)}",
        )
