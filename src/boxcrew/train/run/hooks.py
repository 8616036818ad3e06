"""What works beside the loop of a run, put together for one deployment."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from boxcrew.core.files import write_json
from boxcrew.core.units import format_duration
from boxcrew.evaluate.evaluation import Evaluation
from boxcrew.nets.layers import eval_mode
from boxcrew.tasks.data import EvalOptions, TaskData
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.hooks.ema import Ema
from boxcrew.train.loop.hooks.evaluation import EvaluationHook
from boxcrew.train.loop.hooks.pictures import Pictures
from boxcrew.train.loop.hooks.progress import ProgressReport
from boxcrew.train.loop.hooks.saver import Saver
from boxcrew.train.loop.hooks.skipped import SkippedReport
from boxcrew.train.loop.hooks.stop import GRACE, StopOnSignal
from boxcrew.train.loop.hooks.summaries import Summaries
from boxcrew.train.loop.hooks.verification import Verification
from boxcrew.train.loop.hooks.watch import Watch
from boxcrew.train.loop.trainer import Hook, Trainer
from boxcrew.train.output.best_effort import BestEffort
from boxcrew.train.output.metrics import Metrics
from boxcrew.train.output.outcome import save_task
from boxcrew.train.output.screen import Screen
from boxcrew.train.output.tensorboard import TensorBoardLog


@dataclass(frozen=True, kw_only=True, eq=False)
class EvalRunner:
    """How it is found out what was learnt, and on which data."""

    task_data: TaskData
    ema: Ema  # what is examined
    options: EvalOptions

    def evaluate(self, trainer: Trainer, progress: Callable[[int], None]) -> Evaluation:
        learnt = self.ema.learnt(trainer)
        with eval_mode(learnt):
            return self.task_data.evaluate(
                learnt, trainer.deployment.to_device, replace(self.options, progress=progress)
            )


class RunHooks:
    """The hooks of a run and the files that they write to. `close` whatever happens."""

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        screen: Screen,
        *,
        eval_runner: EvalRunner,
        verification: Verification,
        from_step: int,
        num_processes: int = 1,
    ) -> None:
        self.ema = eval_runner.ema
        self.verification = verification
        self.files = BestEffort(screen.warn)
        shown_in = folder / "tensorboard" if config.summaries.tensorboard else None
        self._board = TensorBoardLog(shown_in, from_step=from_step, warn=screen.warn)
        self._metrics = Metrics(folder, board=self._board, files=self.files, from_step=from_step)
        self.summaries = Summaries(self._metrics, every_steps=config.summaries.every_steps)
        pictures = Pictures(
            folder, config.summaries, eval_runner.task_data, board=self._board, files=self.files
        )
        self.watch = Watch(screen)
        best = Best(folder=folder, eval_runner=eval_runner, screen=screen, files=self.files)
        self.evaluation_hook = EvaluationHook(
            eval_runner.evaluate,
            config,
            self._metrics,
            keep_best=best.keep,
            on_result=(best.say, self.watch.on_result, pictures.on_result),
        )
        self.saver = Saver(
            folder / "checkpoints",
            config.saver,
            warn=screen.warn,
            best_step=lambda: self.evaluation_hook.best_step,
            sync=self._metrics.sync,
        )
        self._stop = StopOnSignal(screen, grace=GRACE if num_processes > 1 else 0.0)
        self._progress = ProgressReport(folder, screen, self.files)
        self.hooks: tuple[Hook, ...] = (
            self.ema,
            verification,
            self.summaries,
            pictures,
            self.watch,
            self.evaluation_hook,
            self.saver,
            self._stop,
            SkippedReport(screen),
            self._progress,
        )

    def close(self) -> None:
        self._stop.restore()
        self._progress.close()
        self._metrics.flush()
        self._board.close()
        self.saver.close()

    def trouble(self) -> str | None:
        """What could not be written in the end, in words."""
        lost = self.files.sentences()
        lost += [self.saver.trouble] if self.saver.trouble else []
        return "; ".join(lost) or None


@dataclass(frozen=True, kw_only=True, eq=False)
class Best:
    """Keeps the weights that did best so far, with the report that says how well."""

    folder: Path
    eval_runner: EvalRunner
    screen: Screen
    files: BestEffort

    def keep(self, trainer: Trainer, evaluation: Evaluation) -> bool:
        """Whether they could be stored."""
        return self.files.write("weights/best.safetensors", partial(self._store, trainer, evaluation))

    def say(self, trainer: Trainer, evaluation: Evaluation, is_best: bool) -> None:  # noqa: FBT001
        mark = " (best so far)" if is_best else ""
        took = format_duration(evaluation.seconds)
        self.screen.say(f"step {trainer.step}: {evaluation.sentence()} in {took}{mark}")
        for problem in evaluation.skipped:
            self.screen.warn(f"left out of the evaluation: {problem}")

    def _store(self, trainer: Trainer, evaluation: Evaluation) -> None:
        path = self.folder / "weights" / "best.safetensors"
        task_data, learnt = self.eval_runner.task_data, self.eval_runner.ema.learnt(trainer)
        save_task(
            path, learnt, task_data.config, task_data.facts, step=trainer.step, seed=trainer.course.seed
        )
        report = {
            "step": trainer.step,
            "task": task_data.config.name,
            "evaluated_at": time.strftime("%Y-%m-%dT%H:%M:%S"),
            **evaluation.to_json(),
        }
        write_json(self.folder / "evaluation.json", report)
