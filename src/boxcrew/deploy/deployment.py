"""A running plan, as one process sees it: where tensors are, how gradients are computed, who updates."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.registry import Registry
from boxcrew.core.types import Batch, Losses
from boxcrew.core.units import format_bytes
from boxcrew.deploy.devices import Devices, on_own_cores
from boxcrew.deploy.memory import data_memory, keep_freed_memory, memory_limit
from boxcrew.deploy.optimizer_state import Slots, load_slots, slots_of
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.hardware.probe import usable_memory
from boxcrew.plan.plan import Clone, Plan

_STEP_BYTES = 512 << 20  # that a step of a small network needs

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """The state of a run that all replicas must agree on before each step."""

    elapsed: float  # seconds of training, by the chief's clock
    stop: bool  # whether the run is to end
    interrupted: bool  # whether it is to end at once


@dataclass(frozen=True, kw_only=True)
class Execution:
    """The plan as its steps are really executed: what may change while it runs. Replaced, never changed."""

    plan: Plan  # with more accumulation than was planned, once memory has run out
    least_parts: int = 1  # micro-batches of a step that memory has shown to be needed

    @property
    def num_parts(self) -> int:
        """The micro-batches of a step."""
        return self.plan.accumulation

    def with_parts(self, num: int) -> Execution:
        """Return one with at least `num` micro-batches; `UsageError` if replicas have too few samples."""
        more = num > self.num_parts
        plan = Plan.of(self.plan.tree() | {"accumulation": num}) if more else self.plan
        return Execution(plan=plan, least_parts=max(num, self.least_parts))


class Deployment(ABC):
    """A plan in one process. Used as a context: entering sets the process up, leaving restores it.

    If parameters are sharded among the replicas, none has the full state (`has_full_state`), and what the
    chief wants to see of it all must gather together: between steps the chief broadcasts commands, which
    the others serve until they may go on.
    """

    has_full_state = True  # every replica has all parameters

    def __init__(self, plan: Plan, devices: Devices, group: ReplicaGroup) -> None:
        self.plan = plan
        self.execution = Execution(plan=plan)
        self.devices = devices
        self.group = group
        self.device = devices.find(plan.parameter_device)  # of the parameters that are updated

    @property
    def is_chief(self) -> bool:
        """True in the process that writes the files."""
        return self.group.is_chief

    @property
    def own_clones(self) -> Sequence[Clone]:
        """The clones that this process computes."""
        return self.plan.replicas[self.group.rank].clones

    def barrier(self) -> None:
        """Wait for all replicas before a step: one that waits for another's data must not seem stuck."""
        if self.group.size > 1:
            self.group.all_reduce(torch.zeros(1))

    def finalize(self) -> None:  # noqa: B027, most have nothing to do
        """Wait, after the last step, until the updates of all replicas are in the parameters."""

    @property
    def positions(self) -> list[int]:
        """The positions in a step of the samples that this process computes: `gradients` gets just these."""
        ranges = self.execution.plan.replica_ranges(self.group.rank)
        return [position for piece in ranges for position in piece]

    @property
    def num_remote_samples(self) -> int:
        """The number of samples of a step that other processes compute."""
        return 0 if self.group.size == 1 else self.plan.batch - len(self.positions)

    def all_reduce_status(self, status: RunStatus) -> RunStatus:
        """Return the chief's clock, and whether any replica wants to stop. Collective."""
        if self.group.size == 1:
            return status
        own = (status.elapsed if self.is_chief else 0.0, status.stop, status.interrupted)
        numbers = torch.tensor(own, dtype=torch.float64)
        self.group.all_reduce(numbers)
        elapsed, stop, interrupted = numbers.tolist()
        return RunStatus(elapsed=elapsed, stop=stop > 0, interrupted=interrupted > 0)

    def broadcast_command(self, command: str) -> None:
        """Send a command to the other replicas, which must be serving; an empty one lets them go on."""
        if not self.has_full_state:
            self.group.broadcast_text(command)

    def serve_commands(self, execute: Callable[[str], object]) -> None:
        """Execute the chief's commands, on all other replicas, until an empty one comes."""
        while not self.has_full_state and (command := self.group.broadcast_text("")):
            execute(command)

    def seed(self, value: int) -> None:
        """Seed the random numbers that layers draw, on all devices."""
        if set(self.plan.devices) <= {"cpu"}:
            torch.default_generator.manual_seed(value)
        else:  # also looks for devices that are not here, which takes a millisecond
            torch.manual_seed(value)

    @abstractmethod
    def setup_module(self, module: nn.Module) -> nn.Module:
        """Return the module on its devices, in the plan's memory format and with the chief's values."""

    @abstractmethod
    def eval_copy(self, module: Module, values: Mapping[str, Tensor] | None = None) -> Module:
        """Return a module to predict with, on the first clone's device: the module itself, a copy of it, or a
        copy with the full `values` as its own (which must be given unless `has_full_state`).
        """

    def to_local(self, tensor: Tensor) -> Tensor:
        """Return this process's shard of a parameter, optimizer state, or any tensor laid out like them."""
        return tensor

    def gather_full_state(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return such tensors in full on the chief. Collective: all replicas must call it with theirs."""
        return tensors

    def load_into(self, target: Tensor, value: Tensor) -> None:
        """Copy a full value into such a tensor."""
        target.copy_(value)

    def slots(self, optimizer: Optimizer) -> Slots:
        """Return the optimizer's state, laid out like the parameters."""
        return slots_of(optimizer)

    def load_slots(self, optimizer: Optimizer, slots: Slots) -> None:
        """Replace the optimizer's state by full tensors. Collective."""
        load_slots(optimizer, slots, self.load_into)

    @abstractmethod
    def to_device(self, inputs: Tensor) -> Tensor:
        """Return a batch's inputs on the device of an `eval_copy`, in the plan's memory format."""

    @abstractmethod
    def gradients(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        """Run a step's forward and backward. Every parameter's gradient is then that of the sum of the
        losses over all samples, divided by their weight, however the samples were split.

        If memory runs out the step is done again in twice as many micro-batches, and so are those after it.
        That changes nothing but the statistics of BatchNorms in training mode, which see one at a time.
        """

    @abstractmethod
    def update(self, optimizer: Optimizer, *, max_norm: float | None) -> float:
        """Clip the gradient to `max_norm` if given, step, and clear it; return its norm before clipping. If
        that is not finite no step is made: the parameters stay as they were.
        """

    @abstractmethod
    def discard(self, task: nn.Module) -> None:
        """Undo `gradients` if no step is made: clear them and restore the buffers (BatchNorm statistics)."""

    @abstractmethod
    def state(self) -> dict[str, object]:
        """Return JSON values for a checkpoint: the same for all strategies, so that another can go on."""

    @abstractmethod
    def load_state(self, state: dict[str, object]) -> None: ...

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
            least, room = math.ceil(100 * (used + _STEP_BYTES) / share) / 100, format_bytes(_STEP_BYTES)
            raise BoxcrewError(
                f"deploy.memory_fraction={fraction:g}: {format_bytes(int(fraction * share))} a process, but "
                f"{format_bytes(used)} are in use before the first step (plan: {self.plan.explain()[0]})",
                advice=f"deploy.memory_fraction={min(1.0, least):g} leaves {room} for a step"
                if least <= 1
                else "use fewer replicas, or a machine with more memory",
            )
        return memory_limit(int(fraction * share))

    def __exit__(self, *error: Any) -> None:
        self._undo.__exit__(*error)


STRATEGIES: Registry[type[Deployment]] = Registry("strategy", "boxcrew.deploy.strategies")


def deploy(plan: Plan, devices: Devices | None = None, group: ReplicaGroup | None = None) -> Deployment:
    """Return the deployment of a plan in one replica of the `group`, which by default has no other."""
    return STRATEGIES.get(plan.strategy)(plan, devices or Devices(), group or ReplicaGroup())
