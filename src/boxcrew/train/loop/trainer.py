"""The training loop: it turns batches into steps; everything else that happens is a hook."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from boxcrew.core.types import Batch
from boxcrew.core.units import counted
from boxcrew.deploy.deployment import Deployment
from boxcrew.deploy.execution import RunStatus
from boxcrew.deploy.optimizer_state import OptimizerState
from boxcrew.deploy.processes.membership import Generation
from boxcrew.tasks.base import Task, freeze_other_phases
from boxcrew.train.loop.checkpoint import Checkpoint, broadcast_checkpoint
from boxcrew.train.loop.guard import Guard
from boxcrew.train.loop.optim import set_rate
from boxcrew.train.loop.regrouping import Points
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
    _leaves: bool = field(default=False, init=False)  # whether this replica wants to leave the others
    _batches: Callable[[int], Iterator[Batch]] | None = field(default=None, init=False)
    _iterator: Iterator[Batch] | None = field(default=None, init=False)  # from the current step on
    _current: Batch | None = field(default=None, init=False)  # of the step that is being computed
    _batch: Batch | None = field(default=None, init=False)  # of the last step of this process

    def __post_init__(self) -> None:
        self._points = Points(self.deployment, self._enter_group)

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

    def leave(self) -> bool:
        """Leave the others after the current step, if they can go on without this replica; return whether."""
        group = self.deployment.group
        self._leaves = self.deployment.can_regroup and not group.is_chief
        self._got_signal |= self._leaves
        return self._leaves

    def fit(self, batches: Callable[[int], Iterator[Batch]], *, joins: bool = False) -> None:
        """Train to the end of the run. `batches(step)` yields the batches from that step on, those of this
        replica in the group that there is then. One that `joins` the others gets their state.
        """
        self._batches = batches
        if joins:
            self._points.passed = -1
            self._points.regroup()
        for hook in self.hooks:
            hook.begin(self)
        if not joins:  # the others have just done it
            self._sync_replicas()
        while not self._is_over or (self.guard.must_roll_back and not self._is_stopped):
            if self.guard.must_roll_back:
                self._roll_back()
            self._run_steps()
        self.deployment.finalize()
        preempted = self.deployment.preempted_replicas(got_signal=self._got_signal)
        if self.interrupted:  # else one that wanted to leave, and is not needed any more
            self.preempted = preempted
        if self.preempted:
            ranks = " and ".join(f"replica {rank}" for rank in self.preempted)
            self.stop_reason = f"{ranks} {'was' if len(self.preempted) == 1 else 'were'} preempted"
        for hook in self.hooks:
            hook.end(self)

    def replace_batches(self, batches: Callable[[int], Iterator[Batch]]) -> None:
        """Read the next steps from another loader, which must yield the same batches."""
        self._batches, self._iterator = batches, None

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

    def _run_steps(self) -> None:
        """Train until the run ends or must roll back."""
        self._iterator = None
        try:
            while not self._is_over and not self.guard.must_roll_back:
                report = self._do_step()
                begun = time.monotonic()
                for hook in self.hooks:
                    hook.after_step(self, report)
                if self.progress.fraction < 1:  # the last evaluation is not training
                    self.elapsed += time.monotonic() - begun
                self._sync_replicas()
        finally:
            self._iterator = None  # the loader's processes end with it

    def _sync_replicas(self) -> None:
        """Let the other replicas serve the chief until its hooks are done, then agree on the status, and on
        whether replicas come or go here.
        """
        group = self.deployment.group
        if self.deployment.is_chief:
            self.deployment.broadcast_command("")
        else:
            self.serve_commands()
        if self._leaves:
            group.leave()
        agreed = self._pass_point(regroups=group.is_superseded)
        if agreed.regroups and not agreed.stop and group.is_superseded:
            self._points.regroup()

    def _enter_group(self, generation: Generation) -> None:
        """Go on in a new group, in which this replica computes other samples than before. Those that are new
        get the chief's state, between two steps.
        """
        group = self.deployment.group
        self._iterator = self._current = None
        if group.is_chief and generation.why:
            self.guard.warn(
                f"step {self.step}: {generation.why}; {counted(group.num_replicas, 'replica')} continue"
            )
        if not generation.new:
            return
        checkpoint = broadcast_checkpoint(self.checkpoint() if group.is_chief else None, group)
        if group.member in generation.new:
            self.load(checkpoint)
            group.mark_ready()

    def _pass_point(self, *, regroups: bool = False) -> RunStatus:
        """Pass a point with no work before it."""
        status, _ = self._points.pass_next(self._status(regroups=regroups), lambda: None)
        return self._follow(status)

    def _status(self, *, regroups: bool = False) -> RunStatus:
        stops = self.stop_reason is not None
        return RunStatus(elapsed=self.elapsed, stop=stops, interrupted=self.interrupted, regroups=regroups)

    def _follow(self, agreed: RunStatus) -> RunStatus:
        """Make all replicas stop at the same step and count the same time, whatever their own hooks did."""
        self.elapsed = agreed.elapsed
        if agreed.interrupted and not self.interrupted:
            self.interrupt("another replica was interrupted")
        elif agreed.stop and self.stop_reason is None:
            self.stop("another replica has stopped")
        self._is_stopped = agreed.stop
        return agreed

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

    def _read(self) -> Batch:
        """Return this replica's batch of the current step. It is read again in a new group."""
        if self._current is None:
            assert self._batches is not None
            with self.deployment.group.reading():
                self._iterator = self._iterator or self._batches(self.step)
                self._current = next(self._iterator)
        return self._current

    def _do_step(self) -> StepReport:
        begun = time.monotonic()
        self._current = None
        batch = self._read()
        waited = time.monotonic() - begun
        peak, factor = self.schedule.peak_rate, self.schedule.config.factor(self.progress)
        rate = peak * factor * self.guard.rate_factor
        set_rate(self.optimizer, rate)
        if self.deployment.can_regroup:
            self._pass_point()
        else:
            self.deployment.barrier()
        terms: dict[str, float] = {}
        losses: dict[str, float] = {}  # of the phases
        with self.deployment.group.computing():
            for phase in self.task.phases_of(self.step):
                with freeze_other_phases(self.task, phase):
                    phase_terms = self._compute_together(phase, is_first=not losses)
                    losses[phase] = sum(phase_terms.values())
                    norm, fault = self._update(losses[phase], phase)
                terms |= phase_terms
                if fault is not None:
                    break
        self.step += 1
        self._batch = batch = self._read()
        if fault is None:
            self.guard.record_success(losses)
        else:
            self.deployment.discard(self.task)
            self.guard.record_failure(self.step, fault, batch, phase=phase if len(losses) > 1 else None)
        seconds = time.monotonic() - begun
        self.elapsed += seconds
        self._pass_point()
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

    def _compute_together(self, phase: str, *, is_first: bool) -> dict[str, float]:
        """Compute the gradients of a phase; if a replica is lost, the others compute them anew."""

        def compute() -> dict[str, float]:
            self._seed_phase(phase, is_first=is_first)
            return self._compute(self._read(), phase)

        if not self.deployment.can_regroup:
            return compute()
        _, terms = self._points.pass_next(
            self._status(), compute, partial(self.deployment.abandon, self.task)
        )
        return terms

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
