"""A plan in one process: what it computes, what it agrees on with other processes, and how it is set up."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.types import Batch
from boxcrew.core.units import format_bytes
from boxcrew.deploy.devices import Devices, on_own_cores
from boxcrew.deploy.memory import data_memory, keep_freed_memory, memory_limit
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.hardware.probe import usable_memory
from boxcrew.plan.plan import Clone, Plan

_STEP_BYTES = 512 << 20  # that a step of a small network needs


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """The state of a run that all replicas must agree on before each step."""

    elapsed: float  # seconds of training, by the chief's clock
    stop: bool  # whether the run is to end
    interrupted: bool  # whether it is to end at once
    regroups: bool = False  # whether other members than those of the group are to train from here on

    def numbers(self) -> tuple[float, ...]:
        return (self.elapsed, self.stop, self.interrupted, self.regroups)

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Self:
        """Return the state that sums over all replicas mean, of which the chief alone gives the clock."""
        elapsed, *flags = numbers
        stop, interrupted, regroups = (flag > 0 for flag in flags)
        return cls(elapsed=elapsed, stop=stop, interrupted=interrupted, regroups=regroups)


@dataclass(frozen=True, kw_only=True)
class Execution:
    """The plan as its steps are really executed: what may change while it runs. Replaced, never changed."""

    plan: Plan  # with more accumulation once memory has run out, and with the replicas that there are now
    min_micro_batches: int = 1  # micro-batches of a step that memory has shown to be needed

    @property
    def num_micro_batches(self) -> int:
        """The micro-batches of a step."""
        return self.plan.accumulation

    def with_micro_batches(self, num: int) -> Execution:
        """Return one with at least `num` micro-batches; `UsageError` if replicas have too few samples."""
        more = num > self.num_micro_batches
        plan = Plan.of(self.plan.tree() | {"accumulation": num}) if more else self.plan
        return Execution(plan=plan, min_micro_batches=max(num, self.min_micro_batches))

    def with_replicas(self, num: int) -> Execution:
        """Return one whose clones are dealt to so many replicas."""
        return Execution(plan=self.plan.with_replicas(num), min_micro_batches=self.min_micro_batches)


class PlanProcess:
    """One process of a plan. Used as a context: entering sets the process up, leaving restores it."""

    has_full_state = True  # every replica has all parameters

    def __init__(self, plan: Plan, devices: Devices, group: ReplicaGroup) -> None:
        self.plan, self.devices, self.group = plan, devices, group
        self.execution = Execution(plan=plan)
        self.device = devices.find(plan.parameter_device)  # of the parameters that are updated
        self._draws: str | None = None  # what the random numbers of layers are drawn from; None: anything

    @property
    def is_chief(self) -> bool:
        """True in the process that writes the files."""
        return self.group.is_chief

    @property
    def own_clones(self) -> Sequence[Clone]:
        """The clones that this process computes."""
        return self.execution.plan.replicas[self.group.rank].clones

    @property
    def own_indices(self) -> range:
        """The indices of these clones among all of the plan."""
        return self.execution.plan.clones_of(self.group.rank)

    @property
    def can_regroup(self) -> bool:
        """True if replicas can go on in a new group when one is lost, comes or leaves."""
        return False

    def barrier(self) -> None:
        """Wait for all replicas before a step: one that waits for another's data must not seem stuck."""
        if self.group.num_replicas > 1:
            self.group.all_reduce(torch.zeros(1))

    def finalize(self) -> None:  # most strategies have nothing to do
        """Wait, after the last step, until the updates of all replicas are in the parameters."""

    @property
    def positions(self) -> list[int]:
        """The positions in a step of the samples that this process computes: `gradients` gets just these."""
        ranges = self.execution.plan.replica_ranges(self.group.rank)
        return [position for piece in ranges for position in piece]

    @property
    def share_sizes(self) -> list[int] | None:
        """The number of these samples that each clone of this process computes, if `gradients` gets a share
        for each of them; None: it gets one batch.
        """
        return None

    def num_samples(self, batch: Batch) -> int:
        """Return the samples of the last step, of which this process had `batch`. Samples that others could
        not read are counted too: this one does not know them.
        """
        remote = 0 if self.group.num_replicas == 1 else self.plan.batch - len(self.positions)
        return remote + (0 if batch.is_blank else len(batch))

    def all_reduce_status(self, status: RunStatus) -> RunStatus:
        """Return the chief's clock, and whether any replica wants to stop. Collective."""
        if self.group.num_replicas == 1:
            return status
        own = status if self.is_chief else replace(status, elapsed=0.0)
        numbers = torch.tensor(own.numbers(), dtype=torch.float64)
        self.group.all_reduce(numbers)
        return RunStatus.of(numbers.tolist())

    def preempted_replicas(self, *, got_signal: bool) -> tuple[int, ...]:
        """Return the replicas that were told to end, unless all were. Collective."""
        flags = torch.zeros(self.group.num_replicas)
        flags[self.group.rank] = float(got_signal)
        self.group.all_reduce(flags)
        return () if flags.all() else tuple(flags.nonzero().flatten().tolist())

    def broadcast_command(self, command: str) -> None:
        """Send a command to the other replicas, which must be serving; an empty one lets them go on."""
        if not self.has_full_state:
            self.group.broadcast_text(command)

    def serve_commands(self, execute: Callable[[str], object]) -> None:
        """Execute the chief's commands, on all other replicas, until an empty one comes."""
        while not self.has_full_state and (command := self.group.broadcast_text("")):
            execute(command)

    def seed_step(self, draws: str) -> None:
        """Let layers draw random numbers from this text and the clone alone: they are the same after a resume
        or a rollback, and on any replica, and nothing has to be stored.
        """
        self._draws = draws
        self.seed_clone(self.own_indices.start)

    def seed_clone(self, clone: int) -> None:
        """Seed the random numbers of the clone with this index, if the step has `seed_step`."""
        if self._draws is not None:
            # numpy's SeedSequence would take 2 % of a step of a small network.
            digest = hashlib.blake2b(f"{self._draws} {clone}".encode(), digest_size=8).digest()
            self.seed(int.from_bytes(digest, "little"))

    def seed(self, value: int) -> None:
        """Seed the random numbers that layers draw, on all devices."""
        if set(self.plan.devices) <= {"cpu"}:
            torch.default_generator.manual_seed(value)
        else:  # also looks for devices that are not here, which takes a millisecond
            torch.manual_seed(value)

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self.set_up(undo)
            self._undo = undo.pop_all()
        return self

    def set_up(self, undo: ExitStack) -> None:
        """Set up the process; what restores it goes onto `undo`. Strategies add to it."""
        self.devices.choose(self.own_clones[0].device)
        if self.plan.pinned:
            undo.enter_context(on_own_cores(*self.group.local_position))
        undo.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(self.plan.threads)
        switches: Sequence[Any] = (torch.backends.cuda.matmul, torch.backends.cudnn)
        for switch in switches:  # by default convolutions round to TF32, and matrix products do not
            undo.callback(setattr, switch, "allow_tf32", switch.allow_tf32)
            switch.allow_tf32 = self.plan.precision == "tf32"
        if self.plan.memory_fraction is not None:
            undo.enter_context(self._limited_memory(self.plan.memory_fraction))
        if "cpu" in self.plan.devices:
            keep_freed_memory()

    def _limited_memory(self, fraction: float) -> AbstractContextManager[None]:
        """Limit accelerators now, and main memory, which replicas on one host share, inside the context."""
        for clone in self.own_clones:
            if clone.device != "cpu":
                self.devices.limit(clone.device, fraction)
        share = usable_memory() / self.group.local_world_size
        used = data_memory()
        if used >= fraction * share:
            least = math.ceil(100 * (used + _STEP_BYTES) / share) / 100
            enough = f"deploy.memory_fraction={least:g} leaves {format_bytes(_STEP_BYTES)} for a step"
            raise BoxcrewError(
                f"deploy.memory_fraction={fraction:g}: {format_bytes(int(fraction * share))} a process, but "
                f"{format_bytes(used)} are in use before the first step (plan: {self.plan.explain()[0]})",
                advice=enough if least <= 1 else "use fewer replicas, or a machine with more memory",
            )
        return memory_limit(int(fraction * share))

    def __exit__(self, *error: Any) -> None:
        self._undo.__exit__(*error)
