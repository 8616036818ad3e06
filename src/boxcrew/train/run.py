"""One training, whole: from settings to a run directory with weights and numbers."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from boxcrew.core.config import Tree, read_yaml, to_yaml
from boxcrew.core.errors import ModelError, UsageError
from boxcrew.core.files import write_json, write_text
from boxcrew.core.types import Batch
from boxcrew.core.units import format_duration
from boxcrew.core.version import VERSION
from boxcrew.data.loader import TrainLoader
from boxcrew.data.transforms.pipeline import eval_pipeline, train_pipeline
from boxcrew.data.workers import Workers
from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.detectors.base import DetectorNet, build_detector
from boxcrew.evaluate.evaluator import Evaluation, Evaluator
from boxcrew.evaluate.predictor import Predictor
from boxcrew.hardware.machine import Machine
from boxcrew.hardware.probe import probe_machine
from boxcrew.tasks.detection import DetectionTask
from boxcrew.train.checkpoint import Checkpoint, check_optimizer, list_checkpoints, newest_checkpoint
from boxcrew.train.config import RunConfig
from boxcrew.train.data import RunData, data_report, load_data
from boxcrew.train.directory import choose_folder, require_run
from boxcrew.train.hooks.ema import Ema
from boxcrew.train.hooks.evaluation import Examination
from boxcrew.train.hooks.freeze import Freeze
from boxcrew.train.hooks.pictures import Pictures
from boxcrew.train.hooks.progress import ProgressReport
from boxcrew.train.hooks.saver import Saver
from boxcrew.train.hooks.stop import StopOnSignal
from boxcrew.train.hooks.summaries import Summaries
from boxcrew.train.metrics import Metrics, open_writer
from boxcrew.train.optim import build_optimizer
from boxcrew.train.outcome import Outcome, describe_network, save_detector, say_result, write_summary
from boxcrew.train.planning import choose_plan, placement
from boxcrew.train.schedule import Length
from boxcrew.train.screen import Screen
from boxcrew.train.trainer import Hook, Trainer


def train(config: RunConfig, screen: Screen) -> Outcome:
    """Trains from nothing, or goes on from a checkpoint in the run's own directory."""
    folder = choose_folder(config.out, config.name)
    own = _own_checkpoint(folder, screen)
    machine = probe_machine()
    screen.say(f"boxcrew {VERSION}, torch {torch.__version__}, Python {platform.python_version()}")
    screen.say(f"machine: {machine.headline()}")
    data = load_data(config.data, seed=config.seed, workers=max(1, int(machine.cores)), screen=screen)
    torch.manual_seed(config.seed)
    detector = build_detector(config.detector, data.source.classes)
    screen.say(describe_network(detector))
    task = DetectionTask(detector)
    freeze = Freeze(task, trainable=config.trainable, unfreeze=config.unfreeze)
    start = _begin(config, detector, own, screen)
    plan = choose_plan(config, machine, detector)
    length = Length.of(
        steps=config.steps,
        epochs=config.epochs,
        seconds=config.time,
        num_samples=len(data.train),
        batch=plan.batch,
    )
    workshop = Workshop(
        config=config, folder=folder, data=data, task=task, freeze=freeze, length=length, screen=screen
    )
    if own is not None:
        workshop.require_fit(own)
        workshop.refuse_finished(own)
    for line in plan.explain():
        screen.say(f"plan: {line}")
    deployment = deploy(plan)
    _write_records(workshop, machine, deployment, start)
    screen.open_log(folder / "train.log")
    try:
        with deployment:
            return workshop.run(deployment, own)
    finally:
        screen.close_log()


def resume(folder: Path, changes: Tree, screen: Screen) -> Outcome:
    """Goes on with a run that was stopped, or that is to be longer."""
    require_run(folder)
    if not list_checkpoints(folder / "checkpoints"):
        raise ModelError(
            f"run={folder}: cannot be resumed: it has no finished checkpoint",
            advice="start it anew with boxcrew train",
        )
    stored = RunConfig.of(read_yaml(folder / "config.yaml"))
    return train(stored.changed({**changes, "out": str(folder)}), screen)


def _own_checkpoint(folder: Path, screen: Screen) -> Checkpoint | None:
    """The newest whole one in the run's directory. A run is never begun anew over one that was there."""
    own, complaints = newest_checkpoint(folder / "checkpoints")
    if own is None and complaints:
        raise ModelError(
            f"{folder}: none of its checkpoints can be used: {complaints[0]}",
            advice="begin a new run with another out=; its weights, if any, can be the start: init=finetune",
        )
    if own is None and any((folder / "weights").glob("*.safetensors")):
        raise UsageError(
            f"out={folder}: has weights, but no checkpoint to go on from",
            advice="give a directory that does not exist yet",
        )
    for complaint in complaints:
        screen.warn(f"{complaint}; an older checkpoint is used")
    return own


def _begin(
    config: RunConfig, detector: DetectorNet, own: Checkpoint | None, screen: Screen
) -> dict[str, Any]:
    """Fills the parameters: the run's own checkpoint wins over everything, and that is said."""
    if own is not None:
        passed_over = f"; init={config.init.kind} is passed over" if config.init.kind != "scratch" else ""
        screen.say(f"init: going on from this run's own checkpoint at step {own.step}{passed_over}")
        return {"kind": "own checkpoint", "step": own.step, "passed_over": config.init.kind}
    report = config.init.fill(detector)
    screen.say(report.sentence())
    return report.to_json()


def _write_records(
    workshop: Workshop, machine: Machine, deployment: Deployment, start: dict[str, Any]
) -> None:
    """All that is decided, before the first step."""
    folder = workshop.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "config.yaml", to_yaml(workshop.config))
    except OSError as error:
        raise UsageError(f"out={folder}: cannot be written to: {error.strerror}") from None
    write_json(folder / "plan.json", deployment.plan.tree())
    write_json(folder / "hardware.json", machine.tree())
    write_json(folder / "data_report.json", data_report(workshop.data.source))
    write_json(folder / "placement.json", placement(deployment.plan, workshop.task.detector))
    write_json(folder / "init.json", start)


@dataclass(frozen=True, kw_only=True, eq=False)
class Workshop:
    """What a run works on and with, before a deployment gives it a place."""

    config: RunConfig
    folder: Path
    data: RunData
    task: DetectionTask
    freeze: Freeze
    length: Length
    screen: Screen

    def require_fit(self, own: Checkpoint) -> None:
        """An error, before anything is written, where the checkpoint is of another detector or optimizer."""
        advice = "give the settings and the data that the run began with, or another out="
        prefix = "task/"
        state = {n.removeprefix(prefix): t for n, t in own.tensors.items() if n.startswith(prefix)}
        try:
            self.task.load_state_dict(state)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise ModelError(f"{self.folder}: its checkpoint does not fit: {reason}", advice=advice) from None
        report = self.folder / "data_report.json"
        classes = json.loads(report.read_text(encoding="utf-8"))["classes"] if report.is_file() else []
        if classes and tuple(classes) != self.data.source.classes:
            raise ModelError(
                f"{self.folder}: was begun with the classes {', '.join(classes)}; "
                f"the data has {', '.join(self.data.source.classes)}",
                advice=advice,
            )
        check_optimizer(self._optimizer(), own.state["optimizer"])

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

    def run(self, deployment: Deployment, own: Checkpoint | None) -> Outcome:
        config = self.config
        deployment.place(self.task)
        ema = Ema(self.task, decay=config.optim.ema)
        from_step = own.step if own else 0
        writer = (
            open_writer(self.folder / "tensorboard", from_step=from_step)
            if config.summaries.tensorboard
            else None
        )
        metrics = Metrics(self.folder, writer=writer, from_step=from_step)
        summaries = Summaries(metrics, every_steps=config.summaries.every_steps)
        evaluator = self._evaluator(deployment)
        pictures = Pictures(self.folder, config.summaries, self.data, evaluator, writer)
        progress = ProgressReport(self.folder, self.screen)
        best = Best(folder=self.folder, ema=ema, config=config, screen=self.screen)
        examination = Examination(
            partial(evaluator, self._predictor(ema, deployment)),
            config.evaluation,
            metrics,
            on_result=(best.on_result, pictures.on_result),
        )
        stop = StopOnSignal(self.screen)
        hooks: list[Hook] = [
            self.freeze,
            ema,
            summaries,
            pictures,
            examination,
            Saver(self.folder / "checkpoints", config.saver),
            stop,
            progress,
        ]
        trainer = self._trainer(deployment, hooks)
        if own is not None:
            trainer.load(own)
        self._say_length(deployment.plan.batch)
        try:
            trainer.fit(partial(self._batches, deployment))
        finally:
            stop.restore()
            progress.close()
            if writer is not None:
                writer.close()
        save_detector(self.folder / "weights" / "last.safetensors", ema.task, config, step=trainer.step)
        summary = write_summary(self.folder, trainer, summaries, examination)
        outcome = Outcome(folder=self.folder, summary=summary, interrupted=trainer.interrupted)
        say_result(outcome, self.screen)
        return outcome

    def _trainer(self, deployment: Deployment, hooks: list[Hook]) -> Trainer:
        return Trainer(
            task=self.task,
            deployment=deployment,
            optimizer=self._optimizer(),
            rate=self.config.optim.rate,
            schedule=self.config.schedule,
            length=self.length,
            clip=self.config.optim.clip,
            hooks=hooks,
        )

    def _optimizer(self) -> Optimizer:
        prefix = f"detector.{self.task.detector.backbone_prefix()}"
        return build_optimizer(self.task, self.config.optim, backbone_prefix=prefix)

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
            pin_memory=deployment.device.type == "cuda",
        )

    def _evaluator(self, deployment: Deployment) -> Evaluator:
        return Evaluator(
            source=self.data.source,
            records=self.data.val,
            batch=self.config.evaluation.batch,
            workers=self._workers(deployment),
        )

    def _predictor(self, ema: Ema, deployment: Deployment) -> Predictor:
        detector = ema.task.get_submodule("detector")
        assert isinstance(detector, DetectorNet)
        size = detector.config.size
        pipeline = eval_pipeline(self.config.transforms, size, size)
        return Predictor(detector=detector, pipeline=pipeline, move=deployment.move)

    def _batches(self, deployment: Deployment, step: int) -> Iterator[Batch]:
        size = self.task.detector.config.size
        loader = TrainLoader(
            self.data.source,
            self.data.train,
            train_pipeline(self.config.transforms, size, size),
            batch=deployment.plan.batch,
            seed=self.config.seed,
            workers=self._workers(deployment),
        )
        return loader.batches(step)


@dataclass(frozen=True, kw_only=True, eq=False)
class Best:
    """Keeps the weights that did best so far, with the report that says how well."""

    folder: Path
    ema: Ema
    config: RunConfig
    screen: Screen

    def on_result(self, trainer: Trainer, evaluation: Evaluation, is_best: bool) -> None:  # noqa: FBT001
        numbers = evaluation.report.numbers
        mark = " (best so far)" if is_best else ""
        self.screen.say(
            f"step {trainer.step}: AP {numbers['AP']:.3f}  AP50 {numbers['AP50']:.3f}  "
            f"AP75 {numbers['AP75']:.3f}, {len(evaluation.judged)} images in "
            f"{format_duration(evaluation.seconds)}{mark}"
        )
        for problem in evaluation.skipped:
            self.screen.warn(f"left out of the evaluation: {problem}")
        if not is_best:
            return
        save_detector(
            self.folder / "weights" / "best.safetensors", self.ema.task, self.config, step=trainer.step
        )
        write_json(
            self.folder / "evaluation.json",
            {
                "step": trainer.step,
                "milliseconds": evaluation.speed.milliseconds(),
                "evaluated_at": time.strftime("%Y-%m-%dT%H:%M:%S"),
                **evaluation.report.to_json(),
            },
        )
