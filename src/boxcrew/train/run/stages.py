"""A run of several stages, each in its own directory.

    out/config.yaml     the settings of the whole run
    out/stages.json     the stages and their states: waiting, begun, finished
    out/1-NAME/         the directory of a stage; COMMIT, with the checksums of its weights, is written last
    out/weights/, out/{plan,evaluation}.json    copies of those of the last finished stage
    out/summary.json    written at the end: the numbers of all stages together, and of each (stage_summary.py)

A descend stage is an ordinary run with its share of the steps, epochs and time; a solve stage (solve.py) is
a closed form. Each starts from the best weights of the one before. A run that was stopped continues with the
first stage that has no COMMIT: from its newest checkpoint, or from its start if it has none. All stages run
in one process.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from boxcrew.core.config import read_yaml, to_yaml
from boxcrew.core.errors import BoxcrewError, ModelError, UsageError
from boxcrew.core.files import flush, write_atomically, write_json, write_text
from boxcrew.core.stage import Stage
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.train.config import RunConfig
from boxcrew.train.init import Finetune
from boxcrew.train.loop.checkpoint import checksum, list_checkpoints
from boxcrew.train.output.best_effort import BestEffort
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.directory import STAGES, read_record, stage_names
from boxcrew.train.run.prepare import prepare
from boxcrew.train.run.resuming import changes_since, with_resolved_auto
from boxcrew.train.run.solve import solve_stage
from boxcrew.train.run.stage_summary import StageResult, Summary, combined_summary, say_summary

COMMIT, FORMAT = "COMMIT", 1
COPIED = ("plan.json", "evaluation.json")


def run_stages(config: RunConfig, folder: Path, screen: Screen, group: ReplicaGroup) -> Outcome:
    """Run the stages that are not finished, in order, and sum up all of them."""
    _require_one_process(config, group)
    stages = config.task.stages()
    if sum(stage.share for stage in stages) > 1 + 1e-9:
        raise ValueError(f"{config.task.name}: the shares of its stages add up to more than 1")
    run = _StagedRun(config=config, folder=folder, stages=stages, screen=screen)
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

    @property
    def folders(self) -> list[Path]:
        return [self.folder / f"{number}-{stage.name}" for number, stage in enumerate(self.stages, start=1)]

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
            changes_since(self.folder, self.config)
        elif (self.folder / "config.yaml").is_file():
            raise UsageError(
                f"out={self.folder}: a run without stages", advice="give a directory that does not exist yet"
            )

    def num_finished(self) -> int:
        """Return how many stages are finished. Raise `ModelError` if one is damaged or out of order."""
        folders = self.folders
        num = next((i for i, folder in enumerate(folders) if not (folder / COMMIT).is_file()), len(folders))
        for folder in folders[:num]:
            _verify(folder)
        for folder in folders[num + 1 :]:
            if folder.exists():
                raise ModelError(
                    f"{folder}: exists, but {folders[num].name}, which it starts from, is not finished",
                    advice=f"remove {folder}, then: boxcrew resume run={self.folder}",
                )
        return num

    def run_from(self, first: int) -> Outcome:
        for index in range(first, len(self.stages)):
            stage, folder = self.stages[index], self.folders[index]
            self._write_states(num_finished=index)
            self.screen.say(f"stage {index + 1} of {len(self.stages)}: {stage.name}")
            try:
                outcome = self._run_stage(index)
            except BoxcrewError:
                failed = read_record(folder, "summary.json")
                if failed:  # in its steps, not before them
                    with BestEffort(self.screen.warn).writing("summary.json"):
                        self._write_summary(index, failed)
                raise
            if outcome.interrupted or outcome.trouble:
                return self._end(outcome, index)
            _publish(folder, self.folder)
            if index + 1 == len(self.stages):
                outcome = self._end(outcome, index)  # before the COMMIT: no finished run lacks its summary
            _commit(folder)
        self._write_states(num_finished=len(self.stages))
        return outcome

    def _end(self, outcome: Outcome, index: int) -> Outcome:
        """Return the outcome of the run after the stage with that index, which was its last."""
        summary = self._write_summary(index, outcome.summary)
        self.screen.open_log(self.folder / "train.log")
        say_summary(summary, self.screen)
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
        if stage.kind == "solve" or not list_checkpoints(folder / "checkpoints"):
            shutil.rmtree(folder, ignore_errors=True)  # what a killed process left
        folder.mkdir(exist_ok=True)
        # A run that was killed between its summary and the COMMIT would be refused as finished.
        (folder / "summary.json").unlink(missing_ok=True)
        config = self._stage_config(index)
        if stage.kind == "solve":
            return solve_stage(stage.name, config, folder, self.screen)
        return prepare(config, folder, self.screen, ReplicaGroup()).run()

    def _stage_config(self, index: int) -> RunConfig:
        """Return the settings of one stage: its share of the limits, its start, and what it changes."""
        stage, folder = self.stages[index], self.folders[index]
        config = self.config.model_copy(update={"out": folder})
        if stage.kind == "descend":
            config = config.model_copy(update=_share_of_limits(config, stage.share))
        if index > 0:
            previous = self.folders[index - 1]
            config = with_resolved_auto(previous, config)
            config = config.model_copy(update={"init": Finetune(checkpoint=previous)})
        config = config.changed(dict(stage.changes))
        if index > 0 and list_checkpoints(folder / "checkpoints"):
            # The stage continues from its checkpoint; the run may have been moved since it began.
            stored = RunConfig.of(read_yaml(folder / "config.yaml"))
            config = config.model_copy(update={"init": stored.init})
        return config

    def _write_states(self, *, num_finished: int) -> None:
        states = ["finished"] * num_finished + ["begun"] + ["waiting"] * len(self.stages)
        records = [
            {"folder": folder.name, "kind": stage.kind, "state": state}
            for folder, stage, state in zip(self.folders, self.stages, states, strict=False)
        ]
        write_json(self.folder / STAGES, {"stages": records})


def _require_one_process(config: RunConfig, group: ReplicaGroup) -> None:
    replicas = config.deploy.replicas
    if group.size > 1 or replicas not in ("auto", 1) or config.deploy.strategy == "parameter_server":
        raise UsageError(
            "a run with stages runs in one process",
            advice="start it without a launcher, with deploy.replicas=1; it may use several devices",
        )


def _share_of_limits(config: RunConfig, share: float) -> dict[str, Any]:
    return {
        "steps": None if config.steps is None else max(1, round(config.steps * share)),
        "epochs": None if config.epochs is None else config.epochs * share,
        "time": None if config.time is None else config.time * share,
    }


def _weight_files(folder: Path) -> list[Path]:
    return sorted((folder / "weights").glob("*.safetensors"))


def _publish(stage: Path, run: Path) -> None:
    """Copy the weights and records of a stage to the directory of the run."""
    (run / "weights").mkdir(exist_ok=True)
    files = [*_weight_files(stage), *(stage / name for name in COPIED if (stage / name).is_file())]
    for file in files:
        write_atomically(run / file.relative_to(stage), partial(shutil.copyfile, file))
    for leftover in _weight_files(run):
        if not (stage / "weights" / leftover.name).is_file():
            leftover.unlink()  # of an earlier stage


def _commit(folder: Path) -> None:
    sums = {str(file.relative_to(folder)): checksum(file) for file in _weight_files(folder)}
    write_json(folder / COMMIT, {"format": FORMAT, "crc32": sums})
    flush(folder)


def _verify(folder: Path) -> None:
    """Raise `ModelError` if the weights of a finished stage are not those that it wrote."""
    advice = (
        f"remove {folder} and the stages after it to repeat them, then: boxcrew resume run={folder.parent}"
    )
    try:
        sums = dict(json.loads((folder / COMMIT).read_text(encoding="utf-8"))["crc32"])
    except (ValueError, KeyError, TypeError):
        raise ModelError(f"{folder / COMMIT}: cut off or damaged", advice=advice) from None
    for name, value in sums.items():
        if not (folder / name).is_file() or checksum(folder / name) != value:
            raise ModelError(
                f"{folder / name}: damaged: its checksum is not the one in {COMMIT}", advice=advice
            )
