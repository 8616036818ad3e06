"""A batch script for SLURM's `sbatch`: it continues the same run after each time limit and preemption."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from pathlib import Path

from boxcrew.core.errors import PREEMPTED
from boxcrew.submit.schedulers._base import GRACE, SCHEDULERS, PlannedJob, Scheduler, Submission, quoted
from boxcrew.submit.settings import SubmitConfig

_STARTING = 10  # minutes: for the start, the evaluations, and leaving
_MIB = 1024**2

# SLURM tells this shell, not the training, that time is up: the shell passes it on and waits for the
# checkpoint. A job that a user has cancelled is told in the same way; it is not begun again.
_WAIT = """\
told=0
heard=0
trap 'told=$((told + 1)); kill -TERM "$step"' TERM
wait "$step"
code=$?
while [ "$told" -gt "$heard" ]; do  # the trap has ended the wait
  heard=$told
  wait "$step"
  code=$?
done
state=$(squeue --noheader --format=%T --jobs="$SLURM_JOB_ID")
if [ "$state" = RUNNING ] && [ "$code" -ne 0 ]; then
  if [ "$told" -gt 0 ] || [ "$code" -eq {preempted} ]; then
    scontrol requeue "$SLURM_JOB_ID"
  elif [ "${{SLURM_RESTART_COUNT:-0}}" -lt {restarts} ] && [ "$code" -ge 128 ]; then
    scontrol requeue "$SLURM_JOB_ID"  # a process was killed, or its node is gone
  fi
fi
exit "$code"
"""


class Slurm(Scheduler):
    program, suffix, is_elastic = "sbatch", ".sbatch", True

    def check(self, submission: Submission) -> None:
        """Accept everything: partition and account are the cluster's own if not given."""

    def text(self, job: PlannedJob) -> str:
        settings = job.settings
        words = job.command(settings.data or job.submission.data)
        step = f"srun --kill-on-bad-exit=0 --cpus-per-task={job.resources.cores}"
        wait = _WAIT.format(preempted=PREEMPTED, restarts=settings.restarts)
        lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in _options(job)), ""]
        if settings.setup:
            lines += [settings.setup, ""]
        return "\n".join(lines) + f"{step} \\\n  {quoted(words)} &\nstep=$!\n{wait}"

    def command(self, file: Path, settings: SubmitConfig) -> list[str]:  # noqa: ARG002  the same for all
        return ["sbatch", str(file)]


def _options(job: PlannedJob) -> Iterator[str]:
    settings, resources = job.settings, job.resources
    least, most = settings.node_range
    yield f"--job-name={shlex.quote(job.submission.name)}"
    yield f"--nodes={least}" if least == most else f"--nodes={least}-{most}"
    yield f"--ntasks-per-node={resources.tasks}"
    yield f"--cpus-per-task={resources.cores}"
    yield f"--mem={resources.memory * resources.tasks // _MIB}M"
    if resources.gpus:
        yield f"--gpus-per-node={resources.gpus * resources.tasks}"
    seconds = settings.time or resources.seconds
    if seconds is not None:
        yield f"--time={math.ceil(seconds / 60) + _STARTING}"
    if settings.partition:
        yield f"--partition={settings.partition}"
    if settings.account:
        yield f"--account={settings.account}"
    yield "--requeue"
    yield "--open-mode=append"
    yield f"--signal=B:TERM@{GRACE}"


SCHEDULERS.register("slurm")(Slurm())
