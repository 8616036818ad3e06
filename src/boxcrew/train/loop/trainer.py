"""The training loop: it turns batches into steps; everything else that happens is a hook."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from boxcrew.core.types import Batch
from boxcrew.deploy.deployment import Deployment
from boxcrew.deploy.execution import RunStatus
from boxcrew.deploy.optimizer_state import OptimizerState
from boxcrew.tasks.base import Task, freeze_other_phases
from boxcrew.train.loop.checkpoint import Checkpoint
from boxcrew.train.loop.guard import Guard
from boxcrew.train.loop.optim import set_rate
from boxcrew.train.loop.schedule import Progress, TrainingSchedule


@dataclass(frozen=True, kw_only=True, eq=False)
class StepReport:
    """The numbers of one step. A report holds no tensors, so that hooks may keep many."""

    progress: Progress  # with this step done
    loss: float
    terms: Mapping[str, float]  # the terms of the loss
    rate: float
    gradient_norm: float
    seconds: float  # of the full step, including `data_wait`
    data_wait: float  # seconds spent waiting for the batch
    num_samples: int
    skipped: tuple[str, ...]  # a description of each sample that could not be read
    fault: str | None = None  # why the last phase made no update; the numbers are then not reliable


class Hook:
    """Something that happens beside the loop. Its `state` and `tensors` are part of every checkpoint."""

    name: str

    def begin(self, trainer: Trainer) -> None:
        """Run before the first step of this process."""

    def after_step(self, trainer: Trainer, report: StepReport) -> None: ...

    def end(self, trainer: Trainer) -> None:
        """Run after the last step, also when the run was stopped, but not after an error."""

    def after_rollback(self, trainer: Trainer) -> None:
        """Run after the state and tensors of an earlier checkpoint were loaded."""

    def state(self) -> dict[str, Any]:
        """Return what must survive a stop, as JSON values."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None: ...

    def tensors(self) -> dict[str, Tensor]:
        """Return tensors that must survive a stop, sharded like the task's."""
        return {}

    def load_tensors(self, trainer: Trainer, tensors: Mapping[str, Tensor]) -> None:
        """Load the full (not sharded) tensors of a checkpoint."""


@dataclass(kw_only=True, eq=False, repr=False)
class Trainer:
    """A task, its optimizer and its deployment, with the progress of the run."""

    task: Task
    deployment: Deployment
    optimizer: Optimizer
    schedule: TrainingSchedule
    hooks: Sequence[Hook]
    guard: Guard
    step: int = field(default=0, init=False)  # steps done
    elapsed: float = field(default=0.0, init=False)  # seconds of training, including those before a resume
    stop_reason: str | None = field(default=None, init=False)
    interrupted: bool = field(default=False, init=False)  # stopped from outside: the run can be resumed
    preempted: tuple[int, ...] = field(default=(), init=False)  # replicas told to end, if others were not
    _got_signal: bool = field(default=False, init=False)  # whether this process got a signal to end
    _is_stopped: bool = field(default=False, init=False)  # on all replicas
    _batches: Callable[[int], Iterator[Batch]] | None = field(default=None, init=False)
    _batches_replaced: bool = field(default=False, init=False)  # since the current iterator was made
    _batch: Batch | None = field(default=None, init=False)  # of the last step of this process

    @property
    def progress(self) -> Progress:
        return self.schedule.limits.progress(self.step, self.elapsed)

    @property
    def batch(self) -> Batch | None:
        """The batch of the last step, or None before the first. It is made again after a resume."""
        if self._batch is None and self.step and self._batches is not None:
            self._batch = next(self._batches(self.step - 1))
        return self._batch

    def stop(self, reason: str) -> None:
        """End the run after the current step."""
        self.stop_reason = self.stop_reason or reason

    def interrupt(self, reason: str, *, by_signal: bool = False) -> None:
        """End the run after the current step, without evaluation or anything else that takes long."""
        self.interrupted = True
        self._got_signal |= by_signal
        self.stop(reason)

    def fit(self, batches: Callable[[int], Iterator[Batch]]) -> None:
        """Train to the end of the run. `batches(step)` yields the batches from that step on."""
        self._batches = batches
        for hook in self.hooks:
            hook.begin(self)
        self._sync_replicas()
        while not self._is_over or (self.guard.must_roll_back and not self._is_stopped):
            if self.guard.must_roll_back:
                self._roll_back()
            self._run_steps(self._batches(self.step))
        self.deployment.finalize()
        self.preempted = self.deployment.preempted_replicas(got_signal=self._got_signal)
        if self.preempted:
            ranks = " and ".join(f"replica {rank}" for rank in self.preempted)
            self.stop_reason = f"{ranks} {'was' if len(self.preempted) == 1 else 'were'} preempted"
        for hook in self.hooks:
            hook.end(self)

    def replace_batches(self, batches: Callable[[int], Iterator[Batch]]) -> None:
        """Read the next steps from another loader, which must yield the same batches."""
        self._batches = batches
        self._batches_replaced = True

    def serve_commands(self) -> None:
        """Take part in the collectives that the chief's hooks ask for, until it continues with the steps."""
        self.deployment.serve_commands(self._gather_from_all)

    def eval_copy(self, owner: str = "task") -> Task:
        """Return the task to evaluate or store, with its own full parameters or those of a hook that keeps
        some. Only the chief may call it. It is on the device to which the deployment moves inputs.
        """
        if owner == "task" and self.deployment.has_full_state:
            return self.deployment.eval_copy(self.task)
        return self.deployment.eval_copy(self.task, self._gather(owner))

    def _gather(self, owner: str) -> Mapping[str, Tensor]:
        """Return the full tensors of the task, the optimizer or a hook. Only the chief may call it."""
        self.deployment.broadcast_command(owner)
        return self._gather_from_all(owner)

    def _gather_from_all(self, owner: str) -> Mapping[str, Tensor]:
        """Return the full tensors of an owner. Collective: every replica must call it."""
        if owner == "task":
            tensors: Mapping[str, Tensor] = self.task.state_dict()
        elif owner == "optimizer":
            tensors = self.deployment.slots(self.optimizer).tensors
        else:
            tensors = next(hook for hook in self.hooks if hook.name == owner).tensors()
        return self.deployment.gather_full_state(tensors)

    @property
    def _is_over(self) -> bool:
        return self.progress.fraction >= 1 or self._is_stopped

    def _run_steps(self, batches: Iterator[Batch]) -> None:
        """Train until the run ends, must roll back, or reads its batches from another loader."""
        self._batches_replaced = False
        while not self._is_over and not self.guard.must_roll_back and not self._batches_replaced:
            report = self._do_step(batches)
            begun = time.monotonic()
            for hook in self.hooks:
                hook.after_step(self, report)
            if self.progress.fraction < 1:  # the last evaluation is not training
                self.elapsed += time.monotonic() - begun
            self._sync_replicas()

    def _sync_replicas(self) -> None:
        """Let the other replicas serve the chief until its hooks are done, then agree on the status."""
        if self.deployment.is_chief:
            self.deployment.broadcast_command("")
        else:
            self.serve_commands()
        self._all_reduce_status()

    def _all_reduce_status(self) -> None:
        """Make all replicas stop at the same step and count the same time, whatever their own hooks did."""
        own = RunStatus(elapsed=self.elapsed, stop=self.stop_reason is not None, interrupted=self.interrupted)
        agreed = self.deployment.all_reduce_status(own)
        self.elapsed = agreed.elapsed
        if agreed.interrupted and not self.interrupted:
            self.interrupt("another replica was interrupted")
        elif agreed.stop and not own.stop:
            self.stop("another replica has stopped")
        self._is_stopped = agreed.stop

    def _roll_back(self) -> None:
        checkpoint = self.guard.rollback_checkpoint(self.step)
        before, elapsed = self.guard.state(), self.elapsed
        failed = f"step {self.step}: {self.guard.failures} steps in a row failed"
        self.guard.warn(f"{failed}: rolling back to step {checkpoint.step}")
        self.load(checkpoint)
        self.elapsed = elapsed  # the time limit still counts the discarded steps
        self.guard.after_rollback(before, to=self.step)
        for hook in self.hooks:
            hook.after_rollback(self)
        rate = f"{self.guard.rate_factor:g} of the learning rate"
        self.guard.warn(f"continuing from step {self.step} at {rate}")

    def _do_step(self, batches: Iterator[Batch]) -> StepReport:
        begun = time.monotonic()
        with self.deployment.group.reading():
            batch = next(batches)
        waited = time.monotonic() - begun
        peak, factor = self.schedule.peak_rate, self.schedule.config.factor(self.progress)
        rate = peak * factor * self.guard.rate_factor
        set_rate(self.optimizer, rate)
        self.deployment.barrier()
        terms: dict[str, float] = {}
        losses: dict[str, float] = {}  # of the phases
        with self.deployment.group.computing():
            for phase in self.task.phases_of(self.step):
                self._seed_phase(phase, is_first=not losses)
                with freeze_other_phases(self.task, phase):
                    phase_terms = self._compute(batch, phase)
                    losses[phase] = sum(phase_terms.values())
                    norm, fault = self._update(losses[phase], phase)
                terms |= phase_terms
                if fault is not None:
                    break
        self.step += 1
        self._batch = batch
        if fault is None:
            self.guard.record_success(losses)
        else:
            self.deployment.discard(self.task)
            self.guard.record_failure(self.step, fault, batch, phase=phase if len(losses) > 1 else None)
        seconds = time.monotonic() - begun
        self.elapsed += seconds
        self._all_reduce_status()
        return StepReport(
            progress=self.progress,
            loss=sum(losses.values()),
            terms=terms,
            rate=rate,
            gradient_norm=norm,
            seconds=seconds,
            data_wait=waited,
            num_samples=self.deployment.num_samples(batch),
            skipped=tuple(dict.fromkeys(message for share in batch.shares for message in share.skipped)),
            fault=fault,
        )

    def _seed_phase(self, phase: str, *, is_first: bool) -> None:
        """Let the layers of a phase draw from the run's seed and the step, and phases differ."""
        draws = f"{self.schedule.seed} {self.step}"
        self.deployment.seed_step(draws if is_first else f"{draws} {phase}")

    def _compute(self, batch: Batch, phase: str) -> dict[str, float]:
        """Compute the gradients and return the terms of the loss."""
        before = self.deployment.execution.num_micro_batches
        losses = self.deployment.gradients(self.task, batch, phase)
        if (parts := self.deployment.execution.num_micro_batches) > before:
            computed = f"steps are computed in {parts} micro-batches from here on"
            self.guard.warn(f"step {self.step + 1}: memory ran out: {computed}")
        divisor = float(losses.divisor)
        return {name: float(value) / divisor for name, value in losses.terms.items()}

    def _update(self, loss: float, phase: str) -> tuple[float, str | None]:
        """Update the parameters; return the gradient norm, and the reason if no update was made."""
        fault = self.guard.fault_of_loss(loss, phase)
        if fault is not None:
            return math.nan, fault
        norm = self.deployment.update(self.optimizer, max_norm=self.schedule.clip)
        return norm, self.guard.fault_of_norm(norm, scaled=self.deployment.plan.precision == "fp16")

    def checkpoint(self) -> Checkpoint:
        """Return a copy of the full state in main memory, which later steps do not change."""
        owners = ["task", "optimizer", *(hook.name for hook in self.hooks if hook.tensors())]
        # Contiguous as in files, so that the thread that writes them has nothing left to compute.
        tensors = {
            f"{owner}/{name}": value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            for owner in owners
            for name, value in self._gather(owner).items()
        }
        state = {
            "elapsed": self.elapsed,
            "optimizer": self.deployment.slots(self.optimizer).plain,
            "deployment": self.deployment.state(),
            "guard": self.guard.state(),
            "hooks": {hook.name: hook.state() for hook in self.hooks},
        }
        return Checkpoint(step=self.step, tensors=tensors, state=copy.deepcopy(state))

    def load(self, checkpoint: Checkpoint) -> None:
        tensors = checkpoint.tensors_by_owner()
        for name, tensor in self.task.state_dict().items():
            self.deployment.load_into(tensor, tensors["task"][name])
        slots = OptimizerState(tensors.get("optimizer", {}), checkpoint.state["optimizer"])
        self.deployment.load_optimizer_state(self.optimizer, slots)
        self.deployment.load_state(checkpoint.state["deployment"])
        self.guard.load_state(checkpoint.state["guard"])
        for hook in self.hooks:
            hook.load_state(checkpoint.hook_state(hook.name))
            hook.load_tensors(self, tensors.get(hook.name, {}))
        self.step = checkpoint.step
        self.elapsed = checkpoint.state["elapsed"]
