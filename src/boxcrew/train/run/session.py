"""A session: a prepared run, trained by the chief from the first step to the summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from boxcrew.core.config import to_yaml
from boxcrew.core.errors import BoxcrewError, UsageError
from boxcrew.core.files import write_json, write_text
from boxcrew.core.types import Batch
from boxcrew.core.units import counted, format_bytes, format_duration
from boxcrew.data.loading.workers import Workers
from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.deploy.memory import peak_memory, reset_peak_memory
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.evaluate.advice import MAX_LINES, MAX_LINES_BEFORE, Advice, worst
from boxcrew.nets.layers import eval_mode
from boxcrew.plan.plan import Plan
from boxcrew.tasks.data import EvalOptions, TrainData
from boxcrew.train.loop.checkpoint import Checkpoint
from boxcrew.train.loop.hooks.evaluation import EVALUATION, BestScores
from boxcrew.train.loop.hooks.mixing import LastUnmixed
from boxcrew.train.loop.trainer import Trainer
from boxcrew.train.output.outcome import Outcome, print_result, save_task
from boxcrew.train.planning.placement import placement
from boxcrew.train.planning.planner import FirstSteps, Planner
from boxcrew.train.run.hooks import RunHooks
from boxcrew.train.run.record import RunRecord, is_damaged
from boxcrew.train.run.replicas import broadcast_session, session_tree
from boxcrew.train.run.resuming import record_changes
from boxcrew.train.run.setup import RunSetup
from boxcrew.train.run.status import announce
from boxcrew.train.run.stored_settings import Changes


@dataclass(kw_only=True, eq=False)
class Session:
    """A run that is ready to begin. `plan` stays as it was decided; `loader_workers` is how many are used,
    which the first steps may show to be too few or too many.
    """

    setup: RunSetup
    planner: Planner
    plan: Plan
    group: ReplicaGroup
    checkpoint: Checkpoint | None  # to resume from
    record: RunRecord  # what the run is made with
    changes: Changes  # of settings, if the run is resumed
    is_last: bool = True  # whether the other replicas may end after it
    loader_workers: int = field(init=False)

    def __post_init__(self) -> None:
        self.loader_workers = self.plan.loader_workers
        self.screen, self.folder = self.setup.screen, self.setup.folder
        self.advice = self.record.advice

    def run(self) -> Outcome:
        """Deploy the plan, write the records, and train to the end."""
        deployment = deploy(self.plan, group=self.group)
        self._write_records()
        announce(self.folder)
        self.screen.open_log(self.folder / "train.log")
        broadcast_session(self.setup, self.plan, self.checkpoint, self.group, is_last=self.is_last)
        try:
            with deployment:
                return self._train(deployment)
        finally:
            self.screen.close_log()

    def _write_records(self) -> None:
        """Write all that was decided, before the first step."""
        folder, task_data = self.folder, self.setup.task_data
        try:
            write_text(folder / "config.yaml", to_yaml(self.setup.config))
        except OSError as error:
            raise UsageError(f"out={folder}: cannot be written to: {error.strerror}") from None
        write_json(folder / "plan.json", self.plan.tree())
        write_json(folder / "hardware.json", self.record.machine.tree())
        report = {**task_data.report(), "digest": task_data.digest(), "advice": self.advice}
        write_json(folder / "data_report.json", report)
        write_json(folder / "placement.json", placement(self.plan, self.setup.task.network))
        write_json(folder / "init.json", self.record.init)
        if is_damaged(folder / EVALUATION):  # `prepare` has said so
            (folder / EVALUATION).unlink()
        record_changes(folder, self.changes, step=self._first_step)

    @property
    def _first_step(self) -> int:
        return 0 if self.checkpoint is None else self.checkpoint.step

    def _train(self, deployment: Deployment) -> Outcome:
        deployment.setup_module(self.setup.task)
        reset_peak_memory()
        task_data = self.setup.cached_data(self.plan.cache_bytes)
        unmixed = LastUnmixed(
            self.setup.limits, task_data.mixed_fraction, batches=partial(self._batches, task_data)
        )
        hooks = RunHooks.of(
            self.setup,
            task_data,
            record=self.record,
            workers=self._workers(),
            unmixed=unmixed,
            on_measured=partial(self._verify_plan, task_data, unmixed),
            from_step=self._first_step,
            num_processes=self.plan.num_processes,
        )
        trainer = self.setup.trainer(deployment, hooks.in_order(), hooks.saver.last_good, self.checkpoint)
        self._print_limits()
        try:
            if deployment.can_regroup:
                self.group.open(session_tree(self.setup, self.plan, is_last=self.is_last))
            trainer.fit(self._batches(task_data, deployment, unmixed.mixed_steps))
            self.group.shut()
        except BoxcrewError as error:
            trainer.stop(error.message)
            self._write_summary(trainer, hooks, state="failed")
            self.screen.info(f"failed: {error.message}")
            raise
        finally:
            hooks.close()
        if task_data.cached_bytes is not None:
            self.screen.info(f"decoded images kept in memory: {format_bytes(task_data.cached_bytes)}")
        return self._finish(trainer, hooks)

    def _finish(self, trainer: Trainer, hooks: RunHooks) -> Outcome:
        """Save the last weights, give advice, and write and print the summary."""
        task_data, task = self.setup.task_data, hooks.ema.eval_copy(trainer)
        with hooks.files.writing("weights/last.safetensors"):
            path, seed = self.folder / "weights" / "last.safetensors", self.setup.config.seed
            save_task(path, task, task_data.config, task_data.facts, step=trainer.step, seed=seed)
        advice = self._advice(trainer, hooks) if not trainer.interrupted else ()
        trainer.deployment.broadcast_command("")  # the other replicas may end
        state = "interrupted" if trainer.interrupted else "finished"
        outcome = Outcome(
            folder=self.folder,
            summary=self._write_summary(trainer, hooks, state=state, advice=advice),
            interrupted=trainer.interrupted,
            preempted=bool(trainer.preempted),
            task_data=task_data,
            trouble=hooks.problems(),
        )
        print_result(outcome, self.setup.config.metric, self.screen)
        return outcome

    def _advice(self, trainer: Trainer, hooks: RunHooks) -> tuple[Advice, ...]:
        """Return advice from the trained network. Printed are the most important, with no cause twice, and no
        more over the full run than fit on a screen.
        """
        last = hooks.evaluation.last
        if last is None:  # the run was resumed after its last step
            return ()
        task = hooks.ema.eval_copy(trainer)
        options = EvalOptions(batch=self.setup.config.evaluation.batch, workers=self._workers())
        with eval_mode(task):
            advice = self.setup.task_data.advice_after(task, trainer.deployment.to_device, options, last)
        early = hooks.watch.advice
        new = [item for item in advice if item.cause not in {known.cause for known in early}]
        limit = MAX_LINES - min(MAX_LINES_BEFORE, len(self.advice)) - len(early)
        for item in worst(new, limit=limit):
            self.screen.info(f"advice: {item}")
        return advice

    def _write_summary(
        self, trainer: Trainer, hooks: RunHooks, *, state: str, advice: Sequence[Advice] = ()
    ) -> dict[str, Any]:
        """Write `summary.json`: the numbers of the best weights, and how the run went."""
        best, summaries = BestScores.of(self.folder), hooks.summaries
        clones = trainer.deployment.own_clones
        summary = {
            "state": state,
            "stopped_because": trainer.stop_reason,
            **best.numbers,
            "best_step": hooks.evaluation.best_step,
            "steps": trainer.step,
            "epochs": trainer.progress.epoch,
            "images": summaries.num_images,
            "skipped_steps": trainer.guard.skipped_steps,
            "rollbacks": trainer.guard.rollbacks,
            "train_seconds": trainer.elapsed,
            "images_per_second": summaries.num_images / max(summaries.seconds, 1e-9),
            "data_wait_share": summaries.data_wait / max(summaries.seconds, 1e-9),
            "peak_memory_bytes": max(peak_memory(clone.device) or 0 for clone in clones),
            "milliseconds": best.milliseconds,
            "classes": best.classes,
            "first_steps": hooks.verification.to_json(),
            "advice": [*self.advice, *(item.to_json() for item in (*hooks.watch.advice, *advice))],
        }
        with hooks.files.writing("summary.json"):
            write_json(self.folder / "summary.json", summary)
        return summary

    def _batches(
        self, task_data: TrainData, deployment: Deployment, mixed_steps: int | None
    ) -> Callable[[int], Iterator[Batch]]:
        return self.setup.batches(deployment, task_data, self._workers, mixed_steps=mixed_steps)

    def _verify_plan(
        self, task_data: TrainData, unmixed: LastUnmixed, trainer: Trainer, measured: FirstSteps
    ) -> None:
        """Compare the first steps with the plan. If it was wrong, the number of loader workers is planned
        again: nothing else can change without changing the numbers of the run.
        """
        plan = trainer.deployment.execution.plan
        # With `unfreeze` the prediction is that of the end of the run, when all layers learn.
        if plan.predicted is None or plan.num_processes > 1 or self.setup.config.unfreeze:
            return
        comparison, as_expected = self.planner.compare(plan, measured)
        self.screen.info(comparison)
        try:
            self.planner.store_ratio(plan, measured)
            if as_expected:
                return
            replanned = self.planner.replanned(plan, measured)
            write_json(self.folder / "plan.json", replanned.tree())
        except (UsageError, OSError) as error:  # no reason to end a run that works
            self.screen.warn(f"not replanned: {error}")
            return
        for line in replanned.expectations():
            self.screen.info(f"replanned: {line}")
        if replanned.loader_workers != self.loader_workers:
            self.loader_workers = replanned.loader_workers
            self.screen.info(f"replanned: {counted(self.loader_workers, 'loader worker')} from here on")
            trainer.replace_batches(self._batches(task_data, trainer.deployment, unmixed.mixed_steps))

    def _workers(self) -> Workers:
        return self.setup.workers(self.plan, self.loader_workers)

    def _print_limits(self) -> None:
        limits = self.setup.limits
        texts = [f"{limits.steps} steps"] if limits.bounded_by_steps else []
        texts += [f"{format_duration(limits.seconds)} of training"] if limits.seconds else []
        epoch = f"{limits.steps_per_epoch:.1f} steps an epoch, batch {self.plan.batch}"
        self.screen.info(f"training: {' or '.join(texts)} ({epoch}), in {self.folder}")
