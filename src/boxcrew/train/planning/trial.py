"""A trial measures the time and memory of a few real steps before a run, in a separate process.

The process is separate because a CPU process that takes too much memory is killed without an error. It may be
killed at any time; the results that it printed by then are used.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import torch

from boxcrew.core.errors import BoxcrewError, first_line
from boxcrew.core.parent_process import die_with
from boxcrew.core.types import Batch
from boxcrew.core.units import counted
from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.deploy.memory import is_out_of_memory, memory_limit, peak_memory, reset_peak_memory
from boxcrew.plan.observed import ComputeMode, Observed, Timing
from boxcrew.plan.plan import Plan
from boxcrew.tasks.base import TASKS, Task, freeze_other_phases
from boxcrew.tasks.facts import DataFacts
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.optim import optimizer_of
from boxcrew.train.loop.schedule import RunLimits
from boxcrew.train.planning.workload import freeze_for

SECONDS = 20.0  # in total, with the start of the process
FEW = 4  # samples: enough to compare settings
WARM_UP = 2  # steps that first make room in memory and plans of their own, and so take longer
ROUNDS, ENOUGH = 3, 1.0  # timed steps after them, or as many as take so many seconds
WORTH_STEPS, WORTH_SECONDS = 200, 120.0  # a shorter run would not win back the time of a trial


@dataclass(frozen=True, kw_only=True, eq=False)
class TrialJob:
    config: RunConfig
    facts: DataFacts
    batch: Batch  # a full micro-batch
    settings: tuple[ComputeMode, ...]
    memory: int  # bytes that the trial may take
    least: int = 1  # samples that can be computed at once


def is_long_run(length: RunLimits) -> bool:
    long_enough = length.seconds is None or length.seconds >= WORTH_SECONDS
    return long_enough and length.steps >= WORTH_STEPS


def run_trial(job: TrialJob, *, seconds: float = SECONDS) -> Observed:
    """Return what a child process measures in `seconds`. It never raises: failures are part of the result."""
    lines: list[str] = []
    with tempfile.TemporaryFile() as packed, tempfile.TemporaryFile() as errors:
        torch.save(_packed(job, ends=time.monotonic() + seconds), packed)
        packed.seek(0)
        try:
            child = subprocess.Popen(
                [sys.executable, "-m", "boxcrew.train.planning.trial"],
                stdin=packed,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # Ctrl-C only reaches the parent
            )
        except OSError as error:
            return Observed(failures=(f"the trial cannot be started: {error.strerror}",))
        code = _watched(child, lines, seconds)
        errors.seek(0)
        last_line = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
    result = _parse(lines)
    failures = list(result.failures)
    if code:
        failures.append(f"the trial process ended with exit code {code}: {last_line}")
    elif not result.timings and not failures:
        failures.append(f"no trial step was finished in {seconds:.3g} s")
    return result.model_copy(update={"failures": tuple(failures)})


def _watched(child: subprocess.Popen[str], lines: list[str], seconds: float) -> int | None:
    """Collect the child's output and stop it after `seconds`. Return its exit code if it ended by itself."""
    assert child.stdout is not None
    reader = threading.Thread(target=lines.extend, args=(child.stdout,), daemon=True)
    reader.start()
    try:
        return child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        child.kill()
        child.wait()
        reader.join()
        child.stdout.close()


def _parse(lines: Sequence[str]) -> Observed:
    """Parse the lines of the child; an unfinished last line is ignored."""
    messages: list[dict[str, Any]] = [json.loads(line) for line in lines if line.endswith("\n")]
    return Observed(
        timings=tuple(Timing.of(message["timing"]) for message in messages if "timing" in message),
        failures=tuple(message["failure"] for message in messages if "failure" in message),
        oom_samples=min(
            (message["oom_samples"] for message in messages if "oom_samples" in message), default=None
        ),
    )


def _packed(job: TrialJob, *, ends: float) -> dict[str, Any]:
    """Return the job as plain values and tensors, which `torch.load` reads safely."""
    return {
        "config": job.config.tree(),
        "facts": json.dumps(job.facts.to_json()),
        "batch": {**vars(job.batch), "targets": dict(job.batch.targets), "extra": dict(job.batch.extra)},
        "settings": [setting.tree() for setting in job.settings],
        "memory": job.memory,
        "least": job.least,
        "parent": os.getpid(),
        "ends": ends,
    }


def main() -> None:
    """Run the trial in the child process. It prints one JSON object per line, and nothing else."""
    results = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    packed = torch.load(sys.stdin.buffer, weights_only=True)
    die_with(packed["parent"])
    config = RunConfig.of(packed["config"])
    job = TrialJob(
        config=config,
        facts=TASKS.get(config.task.name).facts_class.from_json(json.loads(packed["facts"])),
        batch=Batch(**packed["batch"]),
        settings=tuple(map(ComputeMode.of, packed["settings"])),
        memory=packed["memory"],
        least=packed["least"],
    )

    def send(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=results)

    left = packed["ends"] - time.monotonic()
    _Trial(job, ends=time.monotonic() + 0.9 * left, send=send).run()


class _Trial:
    def __init__(self, job: TrialJob, *, ends: float, send: Callable[[dict[str, Any]], None]) -> None:
        self._job = job
        self._ends = ends
        self._send = send
        self._before = 0  # bytes of main memory before the first step

    def run(self) -> None:
        """Measure all settings with few samples, and the usual and faster ones with as many as time allows.

        The usual setting is first, while memory is not yet fragmented by others.
        """
        self._load_libraries()
        usual, *others = self._job.settings
        few, most = self._job.least, len(self._job.batch)
        usual_seconds = self._try(usual, few)
        if usual_seconds is None:
            return
        all_seconds = FEW * usual_seconds / few * (WARM_UP + 1.5) * len(self._job.settings)
        if few < FEW <= most and all_seconds < 0.5 * self._left:
            few, usual_seconds = FEW, self._try(usual, FEW) or usual_seconds
        share = 0.5 if others else 0.9
        many = min(most, int(share * self._left / ((WARM_UP + 1.5) * usual_seconds / few)))
        if many > few:
            self._try(usual, many)
        for setting in others:
            seconds = self._try(setting, few)
            if seconds is not None and seconds < usual_seconds and many > few:
                self._try(setting, many)

    def _load_libraries(self) -> None:
        """Predict one sample: this loads what the run itself has loaded by now, which must not count."""
        with torch.no_grad():
            task = self._task().eval()
            task.network(*task.network_inputs(self._job.batch.select([0])))
        reset_peak_memory()
        self._before = psutil.Process().memory_info().rss

    def _task(self) -> Task:
        config = self._job.config.task
        return TASKS.get(config.name).build(config, self._job.facts)

    @property
    def _left(self) -> float:
        """Seconds that are left for the trial."""
        return self._ends - time.monotonic()

    def _try(self, setting: ComputeMode, num: int) -> float | None:
        """Return the seconds of a step; None if there was no time for one, or it failed."""
        if self._left < 0:
            return None
        try:
            return self._timed(setting, num)
        except (RuntimeError, ValueError, MemoryError, BoxcrewError) as error:
            reason = first_line(error)
            if is_out_of_memory(error):
                self._send({"oom_samples": num})
                reason = "not enough memory"
            self._send({"failure": f"trial of {setting} with {counted(num, 'sample')} failed: {reason}"})
            return None

    def _timed(self, setting: ComputeMode, num: int) -> float:
        torch.manual_seed(self._job.config.seed)
        deployment = deploy(_plan_for(setting, num))
        step = self._step(deployment, self._job.batch.select([i % len(self._job.batch) for i in range(num)]))
        with memory_limit(self._job.memory):
            times = [step()]
            while _are_too_few(times[WARM_UP:]) and times[-1][0] < self._left:
                times.append(step())
        if deployment.execution.num_micro_batches > 1:  # it helped itself, with fewer at once
            raise MemoryError
        ordered = sorted(times[WARM_UP:] or times[-1:])
        seconds, cores = ordered[len(ordered) // 2]
        is_usual = setting == self._job.settings[0]
        peak, before = peak_memory(setting.device), self._before if setting.device == "cpu" else 0
        timing = Timing(
            **setting.tree(),
            samples=num,
            seconds=seconds,
            core_seconds=max(cores, 1e-6) if setting.device == "cpu" else None,
            num_bytes=None if peak is None or not is_usual else max(1, peak - before),
            alone=True,
        )
        self._send({"timing": timing.tree()})
        return seconds

    def _step(self, deployment: Deployment, batch: Batch) -> Callable[[], tuple[float, float]]:
        """Return a function that does one step (of each phase) as in training.

        It returns the seconds of a step, and the core-seconds of all threads.
        """
        config = self._job.config
        task = self._task()
        freeze_for(config, task).set_learning(task, fraction=1.0)  # as the workload is
        deployment.setup_module(task)
        optimizer = optimizer_of(task, config.optim)
        phases = [phase for step in range(task.cycle) for phase in task.phases_of(step)]

        def step() -> tuple[float, float]:
            with deployment:
                start, worked = time.perf_counter(), time.process_time()
                for phase in phases:
                    with freeze_other_phases(task, phase):
                        deployment.gradients(task, batch, phase)
                        deployment.update(optimizer, max_norm=config.optim.clip)
                seconds, cores = time.perf_counter() - start, time.process_time() - worked
                return seconds / task.cycle, cores / task.cycle

        return step


def _are_too_few(times: Sequence[tuple[float, float]]) -> bool:
    return len(times) < ROUNDS and sum(seconds for seconds, _ in times) < ENOUGH


def _plan_for(setting: ComputeMode, num: int) -> Plan:
    mode = setting.model_dump(exclude={"device"})
    return Plan.on_one_device(setting.device, batch=num, loader_workers=0, **mode)


def trial_settings(plan: Plan, config: RunConfig, *, busy_cores: float) -> tuple[ComputeMode, ...]:
    """Return the plan's own setting, then, on CPUs, others with different automatic choices."""
    own = ComputeMode(
        device=plan.clones[0].device,
        memory_format=plan.memory_format,
        threads=plan.threads,
        precision=plan.precision,
    )
    if any(clone.device != "cpu" for clone in plan.clones):
        return (own,)
    formats = [own.memory_format]
    if config.deploy.memory_format == "auto":
        formats.append("contiguous" if own.memory_format == "channels_last" else "channels_last")
    fewer = _fewer_threads(own.threads, config, busy_cores)
    return (
        *(own.model_copy(update={"memory_format": each}) for each in formats),
        *(own.model_copy(update={"threads": num}) for num in fewer),
    )


def _fewer_threads(threads: int, config: RunConfig, busy_cores: float) -> list[int]:
    """Return other numbers of threads worth trying: without hyperthreads, and without busy cores."""
    if config.deploy.threads != "auto":
        return []
    options = [threads // 2] if threads >= 4 else []
    free = max(1, int(threads - busy_cores))
    return [*options, *([free] if busy_cores >= 0.5 and free < threads and free not in options else [])]


if __name__ == "__main__":
    main()
