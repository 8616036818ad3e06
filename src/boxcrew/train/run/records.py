"""The records of a run: what was decided, written to its directory before the first step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boxcrew.core.config import to_yaml
from boxcrew.core.errors import UsageError
from boxcrew.core.files import write_json, write_text
from boxcrew.hardware.machine import Machine
from boxcrew.plan.plan import Plan
from boxcrew.train.planning.placement import placement
from boxcrew.train.run.resuming import Changes, record_changes
from boxcrew.train.run.setup import RunSetup, read_data_report


@dataclass(frozen=True, kw_only=True, eq=False)
class RunRecords:
    """The facts of a run that are recorded besides its setup and plan."""

    machine: Machine
    init: Mapping[str, Any]  # how the parameters were initialized
    advice: Sequence[Mapping[str, Any]]  # given before the run began
    changes: Changes  # of settings, if the run is resumed

    def write(self, setup: RunSetup, plan: Plan, *, step: int) -> None:
        """Write all records of a run that begins at `step`."""
        folder, task_data = setup.folder, setup.task_data
        try:
            write_text(folder / "config.yaml", to_yaml(setup.config))
        except OSError as error:
            raise UsageError(f"out={folder}: cannot be written to: {error.strerror}") from None
        write_json(folder / "plan.json", plan.tree())
        write_json(folder / "hardware.json", self.machine.tree())
        report = {**task_data.report(), "digest": task_data.digest(), "advice": self.advice}
        write_json(folder / "data_report.json", report)
        write_json(folder / "placement.json", placement(plan, setup.task.network))
        if not (folder / "init.json").is_file():  # that of the first start stays
            write_json(folder / "init.json", self.init)
        record_changes(folder, self.changes, step=step)


def stored_advice(folder: Path) -> list[dict[str, Any]]:
    """Return the advice that was given before a run began."""
    advice: list[dict[str, Any]] = read_data_report(folder).get("advice", [])
    return advice


def best_evaluation(folder: Path) -> dict[str, Any]:
    """Return the report of the best weights; one without numbers if there are none yet."""
    path = folder / "evaluation.json"
    empty: dict[str, Any] = {"numbers": {}, "classes": []}
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else empty
