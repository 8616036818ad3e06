"""Plans a job, writes its file, and says how it is submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from boxcrew.core.errors import UsageError
from boxcrew.core.units import counted, format_bytes, format_duration
from boxcrew.hardware.assumed import assumed_machine
from boxcrew.hardware.probe import probe_machine
from boxcrew.plan.request import ReplicaRange
from boxcrew.submit.resources import Resources, plan_resources
from boxcrew.submit.schedulers import SCHEDULERS, PlannedJob, Scheduler, Submission
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen


@dataclass(frozen=True, kw_only=True)
class Written:
    """A job file, and the command that submits it."""

    file: Path
    command: Sequence[str]
    resources: Resources

    def to_json(self) -> Mapping[str, Any]:
        return {
            "file": str(self.file),
            "command": list(self.command),
            "resources": asdict(self.resources),
        }


def write_job(scheduler: Scheduler, submission: Submission, config: RunConfig, screen: Screen) -> Written:
    """Plan the training for the cluster's nodes, and write its job into a new file. `UsageError` if something
    that the scheduler needs was not given; nothing is planned then.
    """
    settings = submission.settings
    nodes = settings.node_range
    if nodes.least < nodes.most and not scheduler.is_elastic:
        elastic = [name for name in SCHEDULERS.names() if SCHEDULERS.get(name).is_elastic]
        raise UsageError(
            f"submit.nodes={nodes}: {scheduler.program} gives a job a fixed number of nodes here",
            advice=f"write one number, or submit it to {' or '.join(elastic)}",
        )
    scheduler.check(submission)
    file = _new_file(settings.file, submission.name, scheduler.suffix)
    machine = probe_machine() if settings.node is None else assumed_machine(settings.node)
    resources = plan_resources(config, machine, nodes, screen)
    if scheduler.starts_replicas:
        resources = resources.with_a_task_each()
    with file.open("x", encoding="utf-8") as stream:
        stream.write(scheduler.text(PlannedJob(submission=submission, resources=resources)))
    screen.info(f"job: {_describe(resources, nodes)}")
    return Written(file=file, command=scheduler.command(file, settings), resources=resources)


def _new_file(file: Path | None, name: str, suffix: str) -> Path:
    """Return the file to write, which does not exist yet."""
    if file is None:
        names = (f"{name}{f'-{number}' if number > 1 else ''}{suffix}" for number in count(1))
        return next(path for path in map(Path, names) if not path.exists())
    if file.exists():
        raise UsageError(f"submit.file={file}: exists already", advice="give another file name")
    if not file.parent.is_dir():
        raise UsageError(f"submit.file={file}: no such directory: {file.parent}")
    return file


def _describe(resources: Resources, nodes: ReplicaRange) -> str:
    least, most = nodes
    where = counted(most, "node") if least == most else f"{least} to {most} nodes"
    gpus = f", {counted(resources.gpus * resources.tasks, 'GPU')}" if resources.gpus else ""
    time = "" if resources.seconds is None else f", for {format_duration(resources.seconds)} at most"
    return (
        f"{where}, each with {counted(resources.replicas, 'replica')}, "
        f"{counted(resources.cores * resources.tasks, 'core')}, "
        f"{format_bytes(resources.memory * resources.tasks)}{gpus}{time}"
    )
