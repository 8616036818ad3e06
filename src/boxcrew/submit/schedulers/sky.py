"""A task of SkyPilot: machines of a cloud, by default spot ones, and a bucket that the run is kept in."""

from __future__ import annotations

import math
from pathlib import Path

import yaml

from boxcrew.core.config import Tree
from boxcrew.core.errors import PREEMPTED, UsageError
from boxcrew.submit.schedulers._base import (
    PORT,
    SCHEDULERS,
    PlannedJob,
    Scheduler,
    Submission,
    is_url,
    quoted,
)
from boxcrew.submit.settings import SubmitConfig

_GIB = 1024**3
_DATA = "/tmp/data"  # noqa: S108 - on a machine that is made for the job
_RANKS = """\
export WORLD_SIZE=$((SKYPILOT_NUM_NODES * {tasks})) MASTER_PORT={port}
export MASTER_ADDR=$(head --lines=1 <<< "$SKYPILOT_NODE_IPS")
pids=()
for place in $(seq 0 {last}); do
  RANK=$((SKYPILOT_NODE_RANK * {tasks} + place)) {words} &
  pids+=($!)
done
code=0
for pid in "${{pids[@]}}"; do
  wait "$pid" || code=$?
done
exit "$code"
"""


class Sky(Scheduler):
    program, suffix = "sky", ".yaml"

    def check(self, submission: Submission) -> None:
        settings = submission.settings
        if not is_url(submission.out):
            advice = "give a bucket, such as out=s3://bucket/runs/a: the machines go when the job ends"
            raise UsageError(f"out={submission.out}: not a bucket", advice=advice)
        if settings.node is not None and "gpu" in settings.node.lower() and settings.gpu is None:
            raise UsageError("submit.gpu= is missing", advice="the GPU's name, such as submit.gpu=A100")

    def text(self, job: PlannedJob) -> str:
        task: Tree = {"name": job.submission.name, "resources": _resources(job)}
        if job.settings.node_range.most > 1:
            task["num_nodes"] = job.settings.node_range.most
        data, mounts = _data(job.submission)
        if mounts:
            task["file_mounts"] = mounts
        if job.settings.setup:
            task["setup"] = f"{job.settings.setup}\n"
        task["run"] = _run(job, data)
        return yaml.dump(task, Dumper=_Blocks, sort_keys=False, allow_unicode=True)

    def command(self, file: Path, settings: SubmitConfig) -> list[str]:  # noqa: ARG002  the same for all
        return ["sky", "jobs", "launch", "--yes", str(file)]


def _resources(job: PlannedJob) -> Tree:
    resources, settings = job.resources, job.settings
    wanted: Tree = {
        "cpus": f"{resources.cores * resources.tasks}+",
        "memory": f"{math.ceil(resources.memory * resources.tasks / _GIB)}+",
        "use_spot": settings.spot,
        "job_recovery": {
            "max_restarts_on_errors": settings.restarts,
            "recover_on_exit_codes": [PREEMPTED],
        },
    }
    if resources.gpus:
        wanted["accelerators"] = f"{settings.gpu}:{resources.gpus * resources.tasks}"
    if settings.image:
        wanted["image_id"] = f"docker:{settings.image}"
    return wanted


def _data(submission: Submission) -> tuple[str, Tree]:
    """Return where the job finds the data, and what is copied there."""
    if submission.settings.data is not None:
        return submission.settings.data, {}
    place = Path(submission.data)
    if is_url(submission.data) or not place.exists():  # an embedded set has no place
        return submission.data, {}
    copied = f"{_DATA}/{place.resolve().name}"
    return copied, {copied: str(place.resolve())}


def _run(job: PlannedJob, data: str) -> str:
    words = quoted(job.command(data))
    if job.settings.node_range.most == 1:
        return f"{words}\n"
    tasks = job.resources.tasks
    return _RANKS.format(tasks=tasks, port=PORT, last=tasks - 1, words=words.replace("\n", "\n  "))


class _Blocks(yaml.SafeDumper):
    """A writer of YAML that keeps the lines of a script."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Blocks.add_representer(str, _text)
SCHEDULERS.register("sky")(Sky())
