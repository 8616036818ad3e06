"""A run at work: the loop with everything around it, from the first step to the summary."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from boxcrew.core.errors import BoxcrewError, ModelError, UsageError
from boxcrew.core.files import write_json
from boxcrew.core.types import Batch
from boxcrew.core.units import counted, format_bytes, format_duration
from boxcrew.data.loading.workers import Workers
from boxcrew.deploy.deployment import Deployment
from boxcrew.deploy.memory import reset_peak_memory
from boxcrew.deploy.optimizer_state import check_slots
from boxcrew.evaluate.advice import MAX_LINES, MAX_LINES_BEFORE, Advice, worst
from boxcrew.nets.layers import eval_mode
from boxcrew.plan.explain import expectations
from boxcrew.plan.plan import Plan
from boxcrew.tasks.base import Task
from boxcrew.tasks.data import EvalOptions, Loader, LoaderOptions, TaskData
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import Checkpoint
from boxcrew.train.loop.guard import Guard
from boxcrew.train.loop.hooks.ema import Ema
from boxcrew.train.loop.hooks.freeze import Freeze
from boxcrew.train.loop.hooks.skipped import SkippedReport
from boxcrew.train.loop.hooks.stop import GRACE, StopOnSignal
from boxcrew.train.loop.hooks.verification import Verification
from boxcrew.train.loop.optim import optimizer_of
from boxcrew.train.loop.replicas_guard import ReplicasGuard
from boxcrew.train.loop.schedule import Course, Length
from boxcrew.train.loop.trainer import Hook, Trainer
from boxcrew.train.output.outcome import Outcome, save_task, say_result, summarize
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning.planner import FirstSteps, Planner
from boxcrew.train.planning.workload import freeze_for
from boxcrew.train.run.hooks import EvalRunner, RunHooks


@dataclass(frozen=True, kw_only=True, eq=False)
class Session:
    """What a run works on and with, before a deployment gives it a place."""

    config: RunConfig
    folder: Path
    task_data: TaskData
    task: Task
    freeze: Freeze
    length: Length
    screen: Screen

    @classmethod
    def of(
        cls,
        config: RunConfig,
        plan: Plan,
        task_data: TaskData,
        *,
        task: Task,
        folder: Path,
        screen: Screen,
    ) -> Self:
        """For a task, its data and a plan, by the settings of the run."""
        _require_measured(config.evaluation.metric, task_data)
        return cls(
            config=config,
            folder=folder,
            task_data=task_data,
            task=task,
            freeze=freeze_for(config, task, norms_learn=plan.batch_norm != "frozen"),
            length=Length.of(
                steps=config.steps,
                epochs=config.epochs,
                seconds=config.time,
                num_samples=task_data.num_train,
                batch=plan.batch,
            ),
            screen=screen,
        )

    def require_fit(self, own: Checkpoint) -> None:
        """An error, before anything is written, where the checkpoint is of another network or optimizer."""
        advice = "give the settings and the data that the run began with, or another out="
        prefix = "task/"
        state = {n.removeprefix(prefix): t for n, t in own.tensors.items() if n.startswith(prefix)}
        try:
            self.task.load_state_dict(state)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise ModelError(f"{self.folder}: its checkpoint does not fit: {reason}", advice=advice) from None
        self._require_same_data(advice)
        check_slots(optimizer_of(self.task, self.config.optim), own.state["optimizer"])

    def _require_same_data(self, advice: str) -> None:
        """The same classes; of anything else that has changed it is said that it has."""
        place = self.folder / "data_report.json"
        before = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
        classes, now = before.get("classes", []), self.task_data.facts["classes"]
        if classes and classes != now:
            raise ModelError(
                f"{self.folder}: was begun with the classes {', '.join(classes)}; "
                f"the data has {', '.join(now)}",
                advice=advice,
            )
        if before.get("digest", self.task_data.digest()) != self.task_data.digest():
            self.screen.warn(
                "the data has changed since this run began: it goes on with what is there now, and not as if "
                "it had never been stopped"
            )

    def refuse_finished(self, own: Checkpoint) -> None:
        """A run that came to its end has nothing to go on with; one that was killed between its last step and
        its summary has.
        """
        place = self.folder / "summary.json"
        summary = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
        if (summary.get("state"), summary.get("steps")) != ("finished", own.step):
            return
        patience = self.config.evaluation.patience
        if self.length.progress(own.step, own.state["elapsed"]).fraction >= 1:
            advice = "to train longer give more epochs=, steps= or time="
        elif patience and own.state["hooks"]["evaluation"]["without_gain"] >= patience:
            advice = "to train longer give a higher evaluation.patience="
        else:
            return
        raise UsageError(f"run={self.folder}: already finished at step {own.step}", advice=advice)

    def first_batch(self, num_samples: int) -> Batch:
        """To try steps with."""
        return next(self.task_data.loader(LoaderOptions(batch=num_samples, seed=self.config.seed)).batches())

    def run(self, deployment: Deployment, past: Checkpoint | None, planner: Planner) -> Outcome:
        """From `past`, or from what the network was filled with, to the end."""
        deployment.setup_module(self.task)
        reset_peak_memory()
        task_data = self._keeping(deployment.plan.cache_bytes)
        verification = Verification(partial(self._judge, planner, task_data))
        parts = self._parts(deployment, task_data, verification, from_step=past.step if past else 0)
        trainer = self._trainer(deployment, parts.hooks, self._guard(deployment, parts.saver.last_good))
        if past is not None:
            trainer.load(past)
        self._say_length(deployment.plan.batch)
        try:
            trainer.fit(self._share(deployment, task_data).batches)
        except BoxcrewError as error:
            trainer.stop(error.message)
            self._write_summary(trainer, parts, state="failed")
            self.screen.say(f"failed: {error.message}")
            raise
        finally:
            parts.close()
        if task_data.kept_bytes is not None:
            self.screen.say(f"decoded images kept in memory: {format_bytes(task_data.kept_bytes)}")
        return self._finish(trainer, parts)

    def track(self, deployment: Deployment, past: Checkpoint | None) -> None:
        """The same steps in a replica that is not the chief: nothing is examined, shown or written."""
        deployment.setup_module(self.task)
        task_data = self._keeping(deployment.plan.cache_bytes)
        stop = StopOnSignal(self.screen, grace=GRACE)
        guard = self._guard(deployment, lambda _: None)
        # An average that is divided among the replicas all of them have to keep.
        averages = () if deployment.has_full_state else (Ema(self.task, decay=self.config.optim.ema),)
        hooks = (*averages, stop, SkippedReport(self.screen))
        trainer = self._trainer(deployment, hooks, guard)
        if past is not None:
            trainer.load(past)
        try:
            trainer.fit(self._share(deployment, task_data).batches)
            trainer.serve_commands()
        finally:
            stop.restore()
        self.screen.say(f"ended after step {trainer.step}: {trainer.stop_reason or 'the run is over'}")

    def _finish(self, trainer: Trainer, parts: RunHooks) -> Outcome:
        last = self.folder / "weights" / "last.safetensors"
        learnt, facts = parts.ema.learnt(trainer), self.task_data.facts
        place = {"step": trainer.step, "seed": self.config.seed}
        save = partial(save_task, last, learnt, self.task_data.config, facts, **place)
        parts.files.write("weights/last.safetensors", save)
        advice = self._advice(trainer, parts) if not trainer.interrupted else ()
        trainer.deployment.broadcast_command("")  # the others may end
        state = "interrupted" if trainer.interrupted else "finished"
        summary = self._write_summary(trainer, parts, state=state, advice=advice)
        outcome = Outcome(
            folder=self.folder,
            summary=summary,
            interrupted=trainer.interrupted,
            task_data=self.task_data,
            trouble=parts.trouble(),
        )
        say_result(outcome, self.screen)
        return outcome

    def _advice(self, trainer: Trainer, parts: RunHooks) -> tuple[Advice, ...]:
        """What the trained network says about its training: of causes that were told while it learnt nothing
        more is said, and no more in all than a screen has lines for.
        """
        last = parts.evaluation_hook.last
        if last is None:  # the run went on after its last step
            return ()
        learnt = parts.ema.learnt(trainer)
        options = EvalOptions(batch=self.config.evaluation.batch, workers=self._workers(trainer.deployment))
        with eval_mode(learnt):
            found = self.task_data.advice_after(learnt, trainer.deployment.to_device, options, last)
        told = parts.watch.advice
        new = [one for one in found if one.cause not in {known.cause for known in told}]
        left = MAX_LINES - min(MAX_LINES_BEFORE, len(stored_advice(self.folder))) - len(told)
        for one in worst(new, limit=left):
            self.screen.say(f"advice: {one}")
        return found

    def _write_summary(
        self, trainer: Trainer, parts: RunHooks, *, state: str, advice: Sequence[Advice] = ()
    ) -> dict[str, Any]:
        summary = summarize(self.folder, trainer, parts.summaries, parts.evaluation_hook, state=state)
        summary["first_steps"] = parts.verification.to_json()
        told = (*parts.watch.advice, *advice)
        summary["advice"] = [*stored_advice(self.folder), *(one.to_json() for one in told)]
        parts.files.write("summary.json", partial(write_json, self.folder / "summary.json", summary))
        return summary

    def _judge(self, planner: Planner, task_data: TaskData, trainer: Trainer, found: FirstSteps) -> None:
        """Says whether the plan was right. If not, it is made anew, once; what comes of the run stays the
        same to the last bit, so all that can change now is who makes the batches.
        """
        deployment = trainer.deployment
        plan = deployment.plan
        if plan.predicted is None or plan.num_processes > 1 or self.config.unfreeze:  # it is of the end then
            return
        said, as_expected = planner.compare(plan, found)
        self.screen.say(said)
        try:
            planner.store_ratio(plan, found)
            if as_expected:
                return
            anew = planner.replanned(plan, found)
            write_json(self.folder / "plan.json", anew.tree())
            deployment.plan = anew
        except (UsageError, OSError) as error:  # no reason to end a run that works
            self.screen.warn(f"not planned anew: {error}")
            return
        for line in expectations(deployment.plan):
            self.screen.say(f"planned anew: {line}")
        if deployment.plan.loader_workers != plan.loader_workers:
            num = counted(deployment.plan.loader_workers, "loader worker")
            self.screen.say(f"planned anew: {num} from here on")
            trainer.read_from(self._share(deployment, task_data).batches)

    def _parts(
        self, deployment: Deployment, task_data: TaskData, verification: Verification, *, from_step: int
    ) -> RunHooks:
        eval_runner = EvalRunner(
            task_data=task_data,
            ema=Ema(self.task, decay=self.config.optim.ema),
            options=EvalOptions(batch=self.config.evaluation.batch, workers=self._workers(deployment)),
        )
        return RunHooks(
            self.folder,
            self.config,
            self.screen,
            eval_runner=eval_runner,
            verification=verification,
            from_step=from_step,
            num_processes=deployment.plan.num_processes,
        )

    def _guard(self, deployment: Deployment, last_good: Callable[[int | None], Checkpoint | None]) -> Guard:
        if deployment.group.size == 1:
            return Guard(self.config.guard, warn=self.screen.warn, last_good=last_good)
        return ReplicasGuard(self.config.guard, deployment, warn=self.screen.warn, last_good=last_good)

    def _trainer(self, deployment: Deployment, hooks: Sequence[Hook], guard: Guard) -> Trainer:
        optim = self.config.optim
        course = Course(
            length=self.length,
            schedule=self.config.schedule,
            rate=optim.scaled_rate(deployment.plan.batch),
            clip=optim.clip,
            seed=self.config.seed,
        )
        return Trainer(
            task=self.task,
            deployment=deployment,
            optimizer=optimizer_of(self.task, optim),
            course=course,
            hooks=(self.freeze, *hooks),
            guard=guard,
        )

    def _say_length(self, batch: int) -> None:
        length = self.length
        limits = [f"{length.steps} steps"] if length.bounded_by_steps else []
        limits += [f"{format_duration(length.seconds)} of training"] if length.seconds else []
        epoch = f"{length.steps_per_epoch:.1f} steps an epoch, batch {batch}"
        self.screen.say(f"training: {' or '.join(limits)} ({epoch}), in {self.folder}")

    def _workers(self, deployment: Deployment) -> Workers:
        return Workers(
            num=deployment.plan.loader_workers,
            prefetch=self.config.loader.prefetch,
            pin_memory=any(clone.device.startswith("cuda") for clone in deployment.plan.clones),
        )

    def _keeping(self, num_bytes: int) -> TaskData:
        try:
            return self.task_data.keeping(num_bytes)
        except OSError as error:  # a limit that cannot be asked for
            self.screen.warn(f"no memory for decoded images: {error.strerror}; they are read each time")
            return self.task_data

    def _share(self, deployment: Deployment, task_data: TaskData) -> Loader:
        """What this replica computes of each step."""
        feed = LoaderOptions(
            batch=deployment.plan.batch,
            seed=self.config.seed,
            workers=self._workers(deployment),
            places=deployment.positions,
        )
        return task_data.loader(feed)


def _require_measured(metric: str, task_data: TaskData) -> None:
    """The settings alone cannot say: which metrics there are depends on the data too."""
    if metric not in {"auto", *task_data.metrics}:
        raise UsageError(
            f"evaluation.metric={metric}: not measured on this data",
            advice=f"it has {', '.join(task_data.metrics)}",
        )


def stored_advice(folder: Path) -> list[dict[str, Any]]:
    """What a run was told before it began."""
    place = folder / "data_report.json"
    report = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
    advice: list[dict[str, Any]] = report.get("advice", [])
    return advice
