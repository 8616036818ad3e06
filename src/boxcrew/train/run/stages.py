"""A run of several stages, each in its own directory.

    out/config.yaml     the settings of the whole run
    out/stages.json     the stages, their states (waiting, begun, finished), and the settings of the run
    out/1-NAME/         the directory of a stage; COMMIT, with checksums of its files, is written last
    out/weights/, out/{plan,evaluation}.json    copies of those of the last finished stage
    out/summary.json    written at the end: the numbers of all stages together, and of each (stage_summary.py)

A descend stage is an ordinary run with its part of the steps, epochs and time; a solve stage (solve.py) is a
closed form. Each starts from the best weights of the one before. A run that was stopped continues with the
first stage that has no COMMIT: from its newest checkpoint, or from its start if it has none.

With several replicas, each descend stage is a session of all of them, and the chief solves while the others
wait. They start every session with the chief's values.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from boxcrew.core.config import to_yaml
from boxcrew.core.errors import BoxcrewError, ModelError, UsageError
from boxcrew.core.files import write_json, write_text
from boxcrew.core.stage import Stage, stage_folders
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.plan.layouts import num_servers
from boxcrew.train.config import RunConfig
from boxcrew.train.init import Finetune
from boxcrew.train.loop.checkpoint import list_checkpoints
from boxcrew.train.output.best_effort import BestEffort
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning.from_settings import refuse_servers
from boxcrew.train.planning.solve_time import cpu_rate, describe_solve, solve_time
from boxcrew.train.run.directory import STAGES, read_record, stage_names, stages_record
from boxcrew.train.run.loading import read_task_weights
from boxcrew.train.run.prepare import prepare
from boxcrew.train.run.record import newest_stored
from boxcrew.train.run.replicas import end_replicas
from boxcrew.train.run.resuming import with_resolved_auto
from boxcrew.train.run.session import Session
from boxcrew.train.run.solve import WORKSPACE, solve_stage
from boxcrew.train.run.stage_files import COMMIT, commit, publish, verify
from boxcrew.train.run.stage_summary import StageResult, Summary, combined_summary, print_summary
from boxcrew.train.run.stored_settings import changes_since


def run_stages(
    config: RunConfig, folder: Path, screen: Screen, group: ReplicaGroup, *, pause_at: int | None = None
) -> Outcome:
    """Run the stages that are not finished, in order, and sum up all of them. The first pauses after step
    `pause_at`.
    """
    refuse_servers(config, num_servers(config.deploy))
    stages = config.task.stages()
    if sum(stage.fraction for stage in stages) > 1 + 1e-9:
        raise ValueError(f"{config.task.name}: the fractions of its stages add up to more than 1")
    run = _StagedRun(
        config=config, folder=folder, stages=stages, screen=screen, group=group, pause_at=pause_at
    )
    run.require_usable()
    first = run.num_finished()
    if first == len(stages):
        raise UsageError(
            f"run={folder}: already finished: all of its {len(stages)} stages",
            advice="start a new run with another out=",
        )
    try:
        write_text(folder / "config.yaml", to_yaml(config))
        return run.run_from(first)
    except OSError as error:
        raise BoxcrewError(
            f"{folder}: not all files could be written: {error.strerror}",
            advice=f"free some disk space, then: boxcrew resume run={folder}",
        ) from None


@dataclass(frozen=True, kw_only=True, eq=False)
class _StagedRun:
    config: RunConfig  # of the whole run
    folder: Path
    stages: Sequence[Stage]
    screen: Screen
    group: ReplicaGroup
    pause_at: int | None  # the step of the first stage after which the run ends for now

    @property
    def folders(self) -> list[Path]:
        return [self.folder / name for name in stage_folders(self.stages)]

    def require_usable(self) -> None:
        """Raise an error if the directory has another run, or if settings of finished stages have changed."""
        stored, names = stage_names(self.folder), [folder.name for folder in self.folders]
        if stored and stored != names:
            raise ModelError(
                f"{self.folder / STAGES}: has the stages {', '.join(stored)}; the settings give "
                f"{', '.join(names)}",
                advice="give the settings that the run began with, or another out=",
            )
        if stored:
            changes_since(RunConfig.of(stages_record(self.folder)["config"]), self.config, self.folder)
        elif (self.folder / "config.yaml").is_file():
            raise UsageError(
                f"out={self.folder}: a run without stages", advice="give a directory that does not exist yet"
            )

    def num_finished(self) -> int:
        """Return how many stages are finished. Raise `ModelError` if one is damaged or out of order."""
        folders = self.folders
        num = next((i for i, folder in enumerate(folders) if not (folder / COMMIT).is_file()), len(folders))
        for folder in folders[:num]:
            verify(folder)
        for folder in folders[num + 1 :]:
            if folder.exists():
                raise ModelError(
                    f"{folder}: exists, but {folders[num].name}, which it starts from, is not finished",
                    advice=f"remove {folder}, then: boxcrew resume run={self.folder}",
                )
        return num

    def run_from(self, first: int) -> Outcome:
        if not self._descends_after(first - 1):
            end_replicas(self.group)
        for index in range(first, len(self.stages)):
            stage, folder = self.stages[index], self.folders[index]
            self._write_states(num_finished=index)
            self.screen.info(f"stage {index + 1} of {len(self.stages)}: {stage.name}")
            try:
                outcome = self._run_stage(index)
            except BoxcrewError:
                failed = read_record(folder, "summary.json")
                if failed:  # in its steps, not before them
                    with BestEffort(self.screen.warn).writing("summary.json"):
                        self._write_summary(index, failed)
                raise
            if outcome.interrupted or outcome.trouble:
                if self._descends_after(index):
                    end_replicas(self.group)
                return self._end(outcome, index)
            publish(folder, self.folder)
            if index + 1 == len(self.stages):
                outcome = self._end(outcome, index)  # before the COMMIT: no finished run lacks its summary
            commit(folder)
        self._write_states(num_finished=len(self.stages))
        return outcome

    def _end(self, outcome: Outcome, index: int) -> Outcome:
        """Return the outcome of the run after the stage with that index, which was its last."""
        summary = self._write_summary(index, outcome.summary)
        self.screen.open_log(self.folder / "train.log")
        print_summary(summary, self.screen)
        self.screen.close_log()
        return replace(
            outcome, folder=self.folder, stage_folders=tuple(self.folders[: index + 1]), summary=summary
        )

    def _write_summary(self, index: int, last: Summary) -> dict[str, Any]:
        """Write and return the summary of all stages up to the one with that index, which has the last."""
        summaries = [*(read_record(folder, "summary.json") for folder in self.folders[:index]), last]
        results = [
            StageResult(folder=folder.name, kind=stage.kind, summary=summary)
            for folder, stage, summary in zip(self.folders, self.stages, summaries, strict=False)
        ]
        summary = combined_summary(results)
        if index + 1 < len(self.stages) and summary["state"] == "finished":
            summary["state"] = "interrupted"  # the stage is finished, but not the run
        write_json(self.folder / "summary.json", summary)
        return summary

    def _run_stage(self, index: int) -> Outcome:
        stage, folder = self.stages[index], self.folders[index]
        folder.mkdir(exist_ok=True)
        if stage.kind == "solve" or not list_checkpoints(folder / "checkpoints"):
            _clear(folder)
        # A run that was killed between its summary and the COMMIT would be refused as finished.
        (folder / "summary.json").unlink(missing_ok=True)
        config = self._stage_config(index)
        if stage.kind == "solve":
            return solve_stage(stage.name, config, folder, self.screen)
        is_last = not self._descends_after(index)
        pause_at = self.pause_at if index == 0 else None
        session = prepare(config, folder, self.screen, self.group, is_last=is_last, pause_at=pause_at)
        self._print_times(index, session)
        return session.run()

    def _print_times(self, index: int, session: Session) -> None:
        """Print how long the closed forms after a stage that trains are expected to take."""
        setup, rate = session.setup, cpu_rate(session.plan, session.planner.workload)
        for stage in self.stages[index + 1 :]:
            if stage.kind == "solve":
                time = solve_time(stage, setup.task_data, setup.task, rate)
                self.screen.info(f"then {stage.name}: {describe_solve(time)}")

    def _descends_after(self, index: int) -> bool:
        """Return whether a stage after the one with that index trains, and needs all replicas for it."""
        return any(stage.kind == "descend" for stage in self.stages[index + 1 :])

    def _stage_config(self, index: int) -> RunConfig:
        """Return the settings of one stage: its part of the limits, its start, and what it changes."""
        folder, config = self.folders[index], self.config
        if index > 0:
            previous = self.folders[index - 1]
            _, meta = read_task_weights(previous, which="best")
            config = with_resolved_auto(config, meta["task"])
            config = config.model_copy(update={"init": Finetune(checkpoint=previous)})
        config = stage_settings(config, self.stages[index]).model_copy(update={"out": folder})
        if index > 0 and (stored := newest_stored(folder)) is not None:
            # The stage continues from its checkpoint; the run may have been moved since it began.
            config = config.model_copy(update={"init": RunConfig.of(stored.config).init})
        return config

    def _write_states(self, *, num_finished: int) -> None:
        states = ["finished"] * num_finished + ["begun"] + ["waiting"] * len(self.stages)
        records = [
            {"folder": folder.name, "kind": stage.kind, "state": state}
            for folder, stage, state in zip(self.folders, self.stages, states, strict=False)
        ]
        write_json(self.folder / STAGES, {"stages": records, "config": self.config.tree()})


def _clear(folder: Path) -> None:
    """Remove what a killed process left of a stage, except for the workspace of a solve stage."""
    for path in folder.iterdir():
        if path.is_dir() and path.name != WORKSPACE:
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()


def stage_settings(config: RunConfig, stage: Stage) -> RunConfig:
    """Return the settings of a run with the stage's part of its limits, and with what the stage changes."""
    if stage.kind == "descend":
        config = config.model_copy(update=_limits_of_stage(config, stage.fraction))
    return config.changed(dict(stage.changes))


def _limits_of_stage(config: RunConfig, fraction: float) -> dict[str, Any]:
    deadline = config.goal.seconds
    return {
        "steps": None if config.steps is None else max(1, round(config.steps * fraction)),
        "epochs": None if config.epochs is None else config.epochs * fraction,
        "time": None if config.time is None else config.time * fraction,
        "goal": config.goal.model_copy(update={"seconds": None if deadline is None else deadline * fraction}),
    }
