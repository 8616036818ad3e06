"""The hooks of the chief, built for one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from boxcrew.data.loading.workers import Workers
from boxcrew.tasks.data import EvalOptions, TaskData
from boxcrew.train.loop.hooks.ema import Ema
from boxcrew.train.loop.hooks.evaluation import BestWeights, EvalRunner, EvaluationHook
from boxcrew.train.loop.hooks.images import ImageSummaries
from boxcrew.train.loop.hooks.mixing import LastUnmixed
from boxcrew.train.loop.hooks.pause import Pause
from boxcrew.train.loop.hooks.progress import ProgressReport, SkippedReport
from boxcrew.train.loop.hooks.saver import Saver
from boxcrew.train.loop.hooks.stop import GRACE, StopOnSignal
from boxcrew.train.loop.hooks.summaries import Summaries
from boxcrew.train.loop.hooks.verification import Verification
from boxcrew.train.loop.hooks.watch import Watch
from boxcrew.train.loop.trainer import Hook, Trainer
from boxcrew.train.output.best_effort import BestEffort
from boxcrew.train.output.metrics import MetricsWriter
from boxcrew.train.output.tensorboard import TensorBoardLog
from boxcrew.train.planning.planner import FirstSteps
from boxcrew.train.run.record import RunRecord
from boxcrew.train.run.setup import RunSetup


@dataclass(frozen=True, kw_only=True, eq=False)
class RunHooks:
    """The hooks of the chief and the files that they write to. Call `close` whatever happens."""

    ema: Ema
    unmixed: LastUnmixed
    verification: Verification
    summaries: Summaries
    images: ImageSummaries
    watch: Watch
    evaluation: EvaluationHook
    pause: Pause
    saver: Saver
    stop: StopOnSignal
    skipped: SkippedReport
    progress: ProgressReport
    files: BestEffort
    metrics: MetricsWriter
    tensorboard: TensorBoardLog

    @classmethod
    def of(
        cls,
        setup: RunSetup,
        task_data: TaskData,
        *,
        record: RunRecord,
        workers: Workers,
        unmixed: LastUnmixed,
        on_measured: Callable[[Trainer, FirstSteps], None],
        from_step: int,
        num_processes: int,
    ) -> Self:
        """Build the hooks of a run that begins at `from_step`. `workers` load the data of evaluations."""
        folder, config, screen = setup.folder, setup.config, setup.screen
        files = BestEffort(screen.warn)
        events = folder / "tensorboard" if config.summaries.tensorboard else None
        tensorboard = TensorBoardLog(events, from_step=from_step, warn=screen.warn)
        metrics = MetricsWriter(folder, tensorboard=tensorboard, files=files, from_step=from_step)
        ema = Ema(setup.task, decay=config.optim.ema)
        watch = Watch(screen)
        images = ImageSummaries(folder, config.summaries, task_data, tensorboard=tensorboard, files=files)
        options = EvalOptions(batch=config.evaluation.batch, workers=workers)
        evaluation = EvaluationHook(
            config,
            EvalRunner(task_data=task_data, ema=ema, options=options),
            best_weights=BestWeights(folder, task_data, files, seed=config.seed),
            metrics=metrics,
            screen=screen,
            on_result=(watch.on_result, images.on_result),
        )
        return cls(
            ema=ema,
            unmixed=unmixed,
            verification=Verification(on_measured),
            summaries=Summaries(metrics, every_steps=config.summaries.every_steps),
            images=images,
            watch=watch,
            evaluation=evaluation,
            pause=Pause(setup.pause_at),
            saver=_saver(setup, record, evaluation, metrics),
            stop=StopOnSignal(screen, grace=GRACE if num_processes > 1 else 0.0),
            skipped=SkippedReport(screen),
            progress=ProgressReport(folder, screen, files),
            files=files,
            metrics=metrics,
            tensorboard=tensorboard,
        )

    def in_order(self) -> tuple[Hook, ...]:
        """Return the hooks in the order in which they run: the saver after those whose state changes."""
        return (
            self.ema,
            self.unmixed,
            self.verification,
            self.summaries,
            self.images,
            self.watch,
            self.evaluation,
            self.pause,
            self.saver,
            self.stop,
            self.skipped,
            self.progress,
        )

    def close(self) -> None:
        self.stop.restore()
        self.progress.close()
        self.metrics.flush()
        self.tensorboard.close()
        self.saver.close()

    def problems(self) -> str | None:
        """Describe what could not be written in the end, or return None."""
        problems = [*self.files.problems(), *([self.saver.trouble] if self.saver.trouble else [])]
        return "; ".join(problems) or None


def _saver(setup: RunSetup, record: RunRecord, evaluation: EvaluationHook, metrics: MetricsWriter) -> Saver:
    """Return the hook that writes checkpoints; it never removes the one of the best weights."""
    return Saver(
        setup.folder / "checkpoints",
        setup.config.saver,
        warn=setup.screen.warn,
        best_step=lambda: evaluation.best_step,
        sync=metrics.sync,
        run=record.to_json(),
    )
