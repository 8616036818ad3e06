"""The loop: batches in, steps out; whatever happens beside it is a hook."""

from __future__ import annotations

import copy
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from boxcrew.core.types import Batch
from boxcrew.deploy.deployment import Deployment, RunStatus
from boxcrew.deploy.optimizer_state import Slots
from boxcrew.tasks.base import Task, learning_in
from boxcrew.train.loop.checkpoint import Checkpoint
from boxcrew.train.loop.guard import Guard
from boxcrew.train.loop.optim import set_rate
from boxcrew.train.loop.schedule import Course, Progress


@dataclass(frozen=True, kw_only=True, eq=False)
class StepReport:
    """What a step did. It holds no tensors: hooks may keep many."""

    progress: Progress  # with this step done
    loss: float
    terms: Mapping[str, float]  # the parts of the loss
    rate: float
    gradient_norm: float
    seconds: float  # of the whole step, waiting included
    data_wait: float  # seconds of it in which no batch was ready
    num_samples: int
    skipped: tuple[str, ...]  # samples that could not be read, in words
    fault: str | None = None  # why its last phase left the parameters as they were; then no number is sure


class Hook:
    """Something that happens beside the loop. What it must remember over a stop it gives as state."""

    name: str

    def begin(self, trainer: Trainer) -> None:
        """Before the first step of this process."""

    def after_step(self, trainer: Trainer, report: StepReport) -> None: ...

    def end(self, trainer: Trainer) -> None:
        """After the last step, also when the run was stopped; not after an error."""

    def went_back(self, trainer: Trainer) -> None:
        """After the run went back to an earlier checkpoint, and states and tensors were loaded from it."""

    def state(self) -> dict[str, Any]:
        """JSON values."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None: ...

    def tensors(self) -> dict[str, Tensor]:
        """Laid out as the deployment has the task's."""
        return {}

    def load_tensors(self, trainer: Trainer, tensors: Mapping[str, Tensor]) -> None:
        """From whole ones."""


class Trainer:
    """One task, one optimizer, one deployment, and how far they have come."""

    def __init__(
        self,
        *,
        task: Task,
        deployment: Deployment,
        optimizer: Optimizer,
        course: Course,
        hooks: Sequence[Hook],
        guard: Guard,
    ) -> None:
        self.task = task
        self.deployment = deployment
        self.optimizer = optimizer
        self.course = course
        self.guard = guard
        self.step = 0  # steps done
        self.elapsed = 0.0  # seconds of training, over all processes that worked on this run
        self.stop_reason: str | None = None
        self.interrupted = False  # from outside: the run is to be resumed
        self._is_stopped = False  # all replicas know of it
        self._hooks = hooks
        self._batches: Callable[[int], Iterator[Batch]] | None = None
        self._stream_is_old = False  # batches are to be read from others
        self._batch: Batch | None = None  # of the last step of this process

    @property
    def progress(self) -> Progress:
        return self.course.length.progress(self.step, self.elapsed)

    @property
    def batch(self) -> Batch | None:
        """Of the last step; None before the first. For a step that another process did it is made again."""
        if self._batch is None and self.step and self._batches is not None:
            self._batch = next(self._batches(self.step - 1))
        return self._batch

    def stop(self, reason: str) -> None:
        """Ends the run after the step at hand."""
        self.stop_reason = self.stop_reason or reason

    def interrupt(self, reason: str) -> None:
        """Ends the run after the step at hand, without anything that takes long."""
        self.interrupted = True
        self.stop(reason)

    def fit(self, batches: Callable[[int], Iterator[Batch]]) -> None:
        """Trains to the end of the run. `batches(step)` gives the batches of that step and all after it."""
        self._batches = batches
        for hook in self._hooks:
            hook.begin(self)
        self._come_together()
        while not self._is_over or self._must_go_back:
            if self._must_go_back:
                self._go_back()
            self._follow(self._batches(self.step))
        self.deployment.finalize()
        for hook in self._hooks:
            hook.end(self)

    def read_from(self, batches: Callable[[int], Iterator[Batch]]) -> None:
        """From the next step on, from others that give the same batches."""
        self._batches = batches
        self._stream_is_old = True

    def serve_commands(self) -> None:
        """To the chief, while its hooks are at work or it finishes; it lets the others go on with `call`."""
        self.deployment.serve_commands(self._brought_together)

    def learnt(self, owner: str = "task") -> Task:
        """The task with what it, or a hook that keeps tensors of it, has learnt: whole, and where the
        deployment moves inputs. The chief asks for it.
        """
        if owner == "task" and self.deployment.has_full_state:
            return self.deployment.eval_copy(self.task)
        return self.deployment.eval_copy(self.task, self._whole(owner))

    def _whole(self, owner: str) -> Mapping[str, Tensor]:
        """For the chief: tensors of the task, the optimizer or a hook."""
        self.deployment.broadcast_command(owner)
        return self._brought_together(owner)

    def _brought_together(self, owner: str) -> Mapping[str, Tensor]:
        if owner == "task":
            tensors: Mapping[str, Tensor] = self.task.state_dict()
        elif owner == "optimizer":
            tensors = self.deployment.slots(self.optimizer).tensors
        else:
            tensors = next(hook for hook in self._hooks if hook.name == owner).tensors()
        return self.deployment.gather_full_state(tensors)

    @property
    def _is_over(self) -> bool:
        return self.progress.fraction >= 1 or self._is_stopped

    @property
    def _must_go_back(self) -> bool:
        return self.guard.has_enough and not self._is_stopped

    def _follow(self, stream: Iterator[Batch]) -> None:
        """To the end of the run, or until it must go back or read otherwise."""
        self._stream_is_old = False
        while not self._is_over and not self.guard.has_enough and not self._stream_is_old:
            report = self._do_step(stream)
            begun = time.monotonic()
            for hook in self._hooks:
                hook.after_step(self, report)
            if self.progress.fraction < 1:  # the last examination is not training
                self.elapsed += time.monotonic() - begun
            self._come_together()

    def _come_together(self) -> None:
        """After hooks were at work, those of the chief much longer than the others'."""
        if self.deployment.is_chief:
            self.deployment.broadcast_command("")
        else:
            self.serve_commands()
        self._agree()

    def _agree(self) -> None:
        """Replicas go on, stop and count the time alike. Hooks of one may have stopped it or taken long."""
        own = RunStatus(elapsed=self.elapsed, stop=self.stop_reason is not None, interrupted=self.interrupted)
        agreed = self.deployment.all_reduce_status(own)
        self.elapsed = agreed.elapsed
        if agreed.interrupted and not self.interrupted:
            self.interrupt("another replica was interrupted")
        elif agreed.stop and not own.stop:
            self.stop("another replica has stopped")
        self._is_stopped = agreed.stop

    def _go_back(self) -> None:
        checkpoint = self.guard.way_back(self.step)
        before, elapsed = self.guard.state(), self.elapsed
        self.guard.warn(
            f"step {self.step}: {self.guard.failures} steps in a row failed: back to step {checkpoint.step}"
        )
        self.load(checkpoint)
        self.elapsed = elapsed  # time does not go back
        self.guard.went_back(before, to=self.step)
        for hook in self._hooks:
            hook.went_back(self)
        self.guard.warn(f"going on from step {self.step} at {self.guard.rate_factor:g} of the rate")

    def _do_step(self, stream: Iterator[Batch]) -> StepReport:
        begun = time.monotonic()
        with self.deployment.group.reading():
            batch = next(stream)
        waited = time.monotonic() - begun
        rate = self.course.rate_at(self.progress) * self.guard.rate_factor
        set_rate(self.optimizer, rate)
        self._draw_anew()
        self.deployment.barrier()
        terms: dict[str, float] = {}
        losses: dict[str, float] = {}  # of the phases
        with self.deployment.group.computing():
            for phase in self.task.phases_of(self.step):
                found, norm, fault = self._do_phase(batch, phase)
                terms |= found
                losses[phase] = sum(found.values())
                if fault is not None:
                    break
        self.step += 1
        self._batch = batch
        if fault is None:
            self.guard.passed(losses)
        else:
            self.deployment.discard(self.task)
            self.guard.failed(self.step, fault, batch, phase=phase if len(losses) > 1 else None)
        seconds = time.monotonic() - begun
        self.elapsed += seconds
        self._agree()
        return StepReport(
            progress=self.progress,
            loss=sum(losses.values()),
            terms=terms,
            rate=rate,
            gradient_norm=norm,
            seconds=seconds,
            data_wait=waited,
            num_samples=self._num_samples(batch),
            skipped=batch.skipped,
            fault=fault,
        )

    def _do_phase(self, batch: Batch, phase: str) -> tuple[dict[str, float], float, str | None]:
        """The terms of its loss, the norm of its gradient, and why no update was made, if so."""
        with learning_in(self.task, phase):
            terms = self._compute(batch, phase)
            return terms, *self._update(sum(terms.values()), phase)

    def _draw_anew(self) -> None:
        """What layers draw at random depends on the seed, the step and the replica alone: a run that was
        stopped, or that goes back, draws the same without having kept anything.
        """
        place = f"{self.course.seed} {self.step} {self.deployment.group.rank}".encode()
        # Of small networks a step is so short that numpy's own way to make seeds would be 2 % of it.
        drawn = hashlib.blake2b(place, digest_size=8).digest()
        self.deployment.seed(int.from_bytes(drawn, "little"))

    def _num_samples(self, batch: Batch) -> int:
        """Of the step, over all replicas; of the others it is not known what they could not read."""
        return self.deployment.num_remote_samples + (0 if batch.is_blank else len(batch))

    def _compute(self, batch: Batch, phase: str) -> dict[str, float]:
        """Gradients, and the terms of the loss."""
        parts = self.deployment.execution.num_parts
        losses = self.deployment.gradients(self.task, batch, phase)
        if self.deployment.execution.num_parts > parts:
            self.guard.warn(
                f"step {self.step + 1}: memory ran out: steps are computed in "
                f"{self.deployment.execution.num_parts} parts from here on"
            )
        divisor = float(losses.divisor)
        return {name: float(value) / divisor for name, value in losses.terms.items()}

    def _update(self, loss: float, phase: str) -> tuple[float, str | None]:
        """The gradient's norm, and why no step was made with it, if so."""
        fault = self.guard.fault_of_loss(loss, phase)
        if fault is not None:
            return math.nan, fault
        norm = self.deployment.update(self.optimizer, max_norm=self.course.clip)
        return norm, self.guard.fault_of_norm(norm, scaled=self.deployment.plan.precision == "fp16")

    def checkpoint(self) -> Checkpoint:
        """A copy, in main memory: it stays as it is while training goes on."""
        owners = ["task", "optimizer", *(hook.name for hook in self._hooks if hook.tensors())]
        tensors = {f"{one}/{name}": value for one in owners for name, value in self._whole(one).items()}
        state = {
            "elapsed": self.elapsed,
            "optimizer": self.deployment.slots(self.optimizer).plain,
            "deployment": self.deployment.state(),
            "guard": self.guard.state(),
            "hooks": {hook.name: hook.state() for hook in self._hooks},
        }
        return Checkpoint(
            step=self.step,
            tensors={name: _copy(value) for name, value in tensors.items()},
            state=copy.deepcopy(state),
        )

    def load(self, checkpoint: Checkpoint) -> None:
        parts: dict[str, dict[str, Tensor]] = {}
        for name, value in checkpoint.tensors.items():
            owner, _, inner = name.partition("/")
            parts.setdefault(owner, {})[inner] = value
        for name, own in self.task.state_dict().items():
            self.deployment.load_into(own, parts["task"][name])
        slots = Slots(parts.get("optimizer", {}), checkpoint.state["optimizer"])
        self.deployment.load_slots(self.optimizer, slots)
        self.deployment.load_state(checkpoint.state["deployment"])
        self.guard.load_state(checkpoint.state.get("guard", {}))
        for hook in self._hooks:
            hook.load_state(checkpoint.state["hooks"].get(hook.name, {}))
            hook.load_tensors(self, parts.get(hook.name, {}))
        self.step = checkpoint.step
        self.elapsed = checkpoint.state["elapsed"]


def _copy(tensor: Tensor) -> Tensor:
    # Laid out as files want it already here, so that whoever writes it has nothing left to compute.
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
