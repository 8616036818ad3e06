"""A few real steps before a run, in a process of their own: how long they take, and how much memory.

A process of its own, because on a CPU nobody says that memory is short: whoever takes too much is killed. It
may be killed at any time; what it has found by then stands.
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
from dataclasses import astuple, dataclass, replace
from typing import Any

import psutil
import torch

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.parent_process import die_with
from boxcrew.core.types import Batch
from boxcrew.core.units import counted
from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.deploy.memory import forget_peak, is_out_of_memory, limited, peak_memory
from boxcrew.plan.observed import Timing
from boxcrew.plan.plan import Clone, MemoryFormat, Plan, Precision, Replica
from boxcrew.tasks.base import TASKS, DataFacts, Task
from boxcrew.tasks.phases import learning_in
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.optim import optimizer_of
from boxcrew.train.loop.schedule import Length
from boxcrew.train.planning.workload import freeze_for

SECONDS = 20.0  # in all, with the start of the process
FEW = 4  # samples: enough to tell ways apart
ROUNDS, ENOUGH = 3, 1.0  # of timed steps, or as many as take so many seconds
WORTH_STEPS, WORTH_SECONDS = 200, 120.0  # a shorter run would not earn the probe back


@dataclass(frozen=True, kw_only=True)
class TrialSetting:
    """To compute."""

    device: str
    memory_format: MemoryFormat
    threads: int
    precision: Precision

    def __str__(self) -> str:
        return f"{self.memory_format} on {counted(self.threads, 'thread')}"


@dataclass(frozen=True, kw_only=True, eq=False)
class TrialJob:
    config: RunConfig
    facts: DataFacts
    batch: Batch  # as many samples as a step computes at once
    settings: tuple[TrialSetting, ...]
    memory: int  # bytes that it may take
    least: int = 1  # samples that can be computed at once


@dataclass(frozen=True, kw_only=True)
class Found:
    timings: tuple[Timing, ...] = ()
    failures: tuple[str, ...] = ()
    too_many: int | None = None  # samples at once that there was not enough memory for


def is_worth_it(length: Length) -> bool:
    seconds_do = length.seconds is None or length.seconds >= WORTH_SECONDS
    return seconds_do and length.steps >= WORTH_STEPS


def run_trial(job: TrialJob, *, seconds: float = SECONDS) -> Found:
    """What a child process finds out in that time. A probe never ends a run: what fails is told."""
    lines: list[str] = []
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as last_words:
        torch.save(_packed(job, ends=time.monotonic() + seconds), given)
        given.seek(0)
        try:
            child = subprocess.Popen(
                [sys.executable, "-m", "boxcrew.train.planning.trial"],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=last_words,
                text=True,
                start_new_session=True,  # Ctrl-C is ours to hear
            )
        except OSError as error:
            return Found(failures=(f"steps cannot be tried: {error.strerror}",))
        code = _watched(child, lines, seconds)
        last_words.seek(0)
        said = last_words.read().decode(errors="replace").strip().rpartition("\n")[2]
    found = _understood(lines)
    if code:
        died = f"the process that tries steps ended with exit code {code}: {said}"
        return replace(found, failures=(*found.failures, died))
    if not found.timings and not found.failures:
        return replace(found, failures=(f"there was no time to try a step in {seconds:.3g} s",))
    return found


def _watched(child: subprocess.Popen[str], lines: list[str], seconds: float) -> int | None:
    """Gathers what it says, ends it when its time is up; gives its exit code if it ended by itself."""
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


def _understood(lines: Sequence[str]) -> Found:
    """The last line may be cut."""
    told: list[dict[str, Any]] = [json.loads(line) for line in lines if line.endswith("\n")]
    return Found(
        timings=tuple(Timing.of(one["timing"]) for one in told if "timing" in one),
        failures=tuple(one["failure"] for one in told if "failure" in one),
        too_many=min((one["too_many"] for one in told if "too_many" in one), default=None),
    )


def _packed(job: TrialJob, *, ends: float) -> dict[str, Any]:
    """Plain values and tensors."""
    return {
        "config": job.config.tree(),
        "facts": json.dumps(dict(job.facts)),
        "batch": {**vars(job.batch), "targets": dict(job.batch.targets), "extra": dict(job.batch.extra)},
        "ways": [astuple(way) for way in job.settings],
        "memory": job.memory,
        "least": job.least,
        "parent": os.getpid(),
        "ends": ends,
    }


def main() -> None:
    """The child's whole life: what it finds goes line by line to its standard output, and nothing else."""
    results = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    packed = torch.load(sys.stdin.buffer, weights_only=True)
    die_with(packed["parent"])
    names = ("device", "memory_format", "threads", "precision")
    job = TrialJob(
        config=RunConfig.of(packed["config"]),
        facts=json.loads(packed["facts"]),
        batch=Batch(**packed["batch"]),
        settings=tuple(TrialSetting(**dict(zip(names, one, strict=True))) for one in packed["ways"]),
        memory=packed["memory"],
        least=packed["least"],
    )

    def tell(found: dict[str, Any]) -> None:
        print(json.dumps(found), file=results)

    left = packed["ends"] - time.monotonic()
    _Probe(job, ends=time.monotonic() + 0.9 * left, tell=tell).run()


class _Probe:
    def __init__(self, job: TrialJob, *, ends: float, tell: Callable[[dict[str, Any]], None]) -> None:
        self._job = job
        self._ends = ends
        self._tell = tell
        self._before = 0  # bytes of main memory, before the first step

    def run(self) -> None:
        """The usual way first, with as few samples as can be, with few, and with as many as a step has or as
        time allows: so long it has the memory for itself. Then the other ways; and with many those of them
        that were faster.
        """
        self._load_libraries()
        usual, *others = self._job.settings
        few, most = self._job.least, len(self._job.batch)
        found = self._try(usual, few)
        if found is None:
            return
        if few < FEW <= most and FEW * found / few * ROUNDS * len(self._job.settings) < 0.5 * self._left:
            few, found = FEW, self._try(usual, FEW) or found
        share = 0.5 if others else 0.9
        many = min(most, int(share * self._left / (2.5 * found / few)))
        if many > few:
            self._try(usual, many)
        for way in others:
            other = self._try(way, few)
            if other is not None and other < found and many > few:
                self._try(way, many)

    def _load_libraries(self) -> None:
        """A look at one sample brings in all that the run itself has loaded by now, and is not to count."""
        with torch.no_grad():
            task = self._task().eval()
            task.network(*task.network_inputs(self._job.batch.select([0])))
        forget_peak()
        self._before = psutil.Process().memory_info().rss

    def _task(self) -> Task:
        config = self._job.config.task
        return TASKS.get(config.name).build(config, self._job.facts)

    @property
    def _left(self) -> float:
        """Seconds."""
        return self._ends - time.monotonic()

    def _try(self, way: TrialSetting, num: int) -> float | None:
        """Seconds of a step; None where there was no time for one, or it failed."""
        if self._left < 0:
            return None
        try:
            return self._timed(way, num)
        except (RuntimeError, ValueError, MemoryError, BoxcrewError) as error:
            what = str(error).partition("\n")[0]
            if is_out_of_memory(error):
                self._tell({"too_many": num})
                what = "not enough memory"
            self._tell({"failure": f"{way} with {counted(num, 'sample')} could not be tried: {what}"})
            return None

    def _timed(self, way: TrialSetting, num: int) -> float:
        torch.manual_seed(self._job.config.seed)
        deployment = deploy(_plan_for(way, num))
        step = self._step(deployment, self._job.batch.select([i % len(self._job.batch) for i in range(num)]))
        with limited(self._job.memory):
            times = [step()]  # the first also makes room and plans of its own
            while _are_too_few(times[1:]) and times[-1][0] < self._left:
                times.append(step())
        if deployment.plan.accumulation > 1:  # it helped itself, with fewer at once
            raise MemoryError
        kept = sorted(times[1:] or times)
        seconds, cores = kept[len(kept) // 2]
        is_usual = way == self._job.settings[0]
        peak, before = peak_memory(way.device), self._before if way.device == "cpu" else 0
        timing = Timing(
            device=way.device,
            memory_format=way.memory_format,
            threads=way.threads,
            precision=way.precision,
            samples=num,
            seconds=seconds,
            core_seconds=max(cores, 1e-6) if way.device == "cpu" else None,
            num_bytes=None if peak is None or not is_usual else max(1, peak - before),
            alone=True,
        )
        self._tell({"timing": timing.tree()})
        return seconds

    def _step(self, deployment: Deployment, batch: Batch) -> Callable[[], tuple[float, float]]:
        """Does a step as in training, or as many as have all phases; gives the seconds of one, and those of
        all threads.
        """
        config = self._job.config
        task = self._task()
        freeze_for(config, task).set_learning(task, fraction=1.0)  # as the workload is
        deployment.place(task)
        optimizer = optimizer_of(task, config.optim)
        phases = [phase for step in range(task.cycle) for phase in task.phases_of(step)]

        def take() -> tuple[float, float]:
            with deployment:
                begun, worked = time.perf_counter(), time.process_time()
                for phase in phases:
                    with learning_in(task, phase):
                        deployment.gradients(task, batch, phase)
                        deployment.update(optimizer, max_norm=config.optim.clip)
                seconds, cores = time.perf_counter() - begun, time.process_time() - worked
                return seconds / task.cycle, cores / task.cycle

        return take


def _are_too_few(times: Sequence[tuple[float, float]]) -> bool:
    return len(times) < ROUNDS and sum(seconds for seconds, _ in times) < ENOUGH


def _plan_for(way: TrialSetting, num: int) -> Plan:
    return Plan(
        replicas=(Replica(clones=(Clone(device=way.device, share=num),)),),
        parameter_device=way.device,
        optimizer_device=way.device,
        batch=num,
        precision=way.precision,
        memory_format=way.memory_format,
        threads=way.threads,
        loader_workers=0,
    )


def trial_settings(plan: Plan, config: RunConfig, *, busy_cores: float) -> tuple[TrialSetting, ...]:
    """The plan's own first; others differ in what was left to us. Only for CPUs there is a choice."""
    own = TrialSetting(
        device=plan.clones[0].device,
        memory_format=plan.memory_format,
        threads=plan.threads,
        precision=plan.precision,
    )
    if any(clone.device != "cpu" for clone in plan.clones):
        return (own,)
    formats: Sequence[MemoryFormat] = (own.memory_format,)
    if config.deploy.memory_format == "auto":
        other: MemoryFormat = "contiguous" if own.memory_format == "channels_last" else "channels_last"
        formats = (own.memory_format, other)
    found = [replace(own, memory_format=one) for one in formats]
    return (*found, *(replace(own, threads=num) for num in _fewer_threads(own.threads, config, busy_cores)))


def _fewer_threads(threads: int, config: RunConfig, busy_cores: float) -> list[int]:
    """Cores that are halves of one compute no more, and one that others use is waited for by all."""
    if config.deploy.threads != "auto":
        return []
    found = [threads // 2] if threads >= 4 else []
    free = max(1, int(threads - busy_cores))
    return [*found, *([free] if busy_cores >= 0.5 and free < threads and free not in found else [])]


if __name__ == "__main__":
    main()
