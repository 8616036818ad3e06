"""A running plan, seen from one process: where tensors go, how gradients are made, who steps."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.registry import Registry
from boxcrew.core.types import Batch, Losses
from boxcrew.core.units import format_bytes
from boxcrew.deploy.cores import on_own_cores
from boxcrew.deploy.devices import Devices
from boxcrew.deploy.eval_copy import Module
from boxcrew.deploy.memory import keep_freed_memory, limited, taken
from boxcrew.deploy.optimizer_state import Slots, load_slots, slots_of
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.hardware.probe import usable_memory
from boxcrew.plan.plan import Clone, Plan

_ROOM = 512 << 20  # bytes: what a step needs that is not large


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """Where a run stands: what all replicas must see alike, or they would part."""

    elapsed: float  # seconds of training, by the chief's clock
    stop: bool  # whether it is to end
    interrupted: bool  # and at once


class Deployment(ABC):
    """Used as a context: entering sets the process up, leaving restores it.

    Where parameters are divided among the replicas, none of them `is_whole`, and what the chief wants to see
    of them all have to bring together: it calls the others with a word for what it wants, who attend between
    steps and answer until they may go on.
    """

    has_full_state = True  # every replica has all parameters

    def __init__(self, plan: Plan, devices: Devices, group: ReplicaGroup) -> None:
        self.plan = plan  # with more accumulation than it began with, once memory has run out
        self.devices = devices
        self.group = group
        self.device = devices.find(plan.parameter_device)  # where the true parameters live

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files."""
        return self.group.is_chief

    @property
    def own_clones(self) -> Sequence[Clone]:
        """Those of this process."""
        return self.plan.replicas[self.group.rank].clones

    def barrier(self) -> None:
        """Before a step: who waits for another's data is not to seem stuck in computing."""
        if self.group.size > 1:
            self.group.all_reduce(torch.zeros(1))

    def finalize(self) -> None:  # noqa: B027, most have nothing to do
        """After the last step: waits until what all replicas have done is in the parameters."""

    @property
    def positions(self) -> list[int]:
        """Which samples of a step this process computes: `gradients` is given a batch of just these."""
        return [place for piece in self.plan.replica_ranges(self.group.rank) for place in piece]

    @property
    def num_elsewhere(self) -> int:
        """Samples of a step that other processes compute."""
        return 0 if self.group.size == 1 else self.plan.batch - len(self.positions)

    def all_reduce_status(self, status: RunStatus) -> RunStatus:
        """The chief's clock, and what any replica wants. All replicas must come by."""
        if self.group.size == 1:
            return status
        own = (status.elapsed if self.is_chief else 0.0, status.stop, status.interrupted)
        numbers = torch.tensor(own, dtype=torch.float64)
        self.group.all_reduce(numbers)
        elapsed, stop, interrupted = numbers.tolist()
        return RunStatus(elapsed=elapsed, stop=stop > 0, interrupted=interrupted > 0)

    def broadcast_command(self, word: str) -> None:
        """The chief calls the others to something; with no word, to go on."""
        if not self.has_full_state:
            self.group.broadcast_text(word)

    def serve_commands(self, answer: Callable[[str], object]) -> None:
        """The others' part: does with `answer` what the chief calls for until they may go on."""
        while not self.has_full_state and (word := self.group.broadcast_text("")):
            answer(word)

    def seed(self, value: int) -> None:
        """Of what layers draw at random, on all devices."""
        if set(self.plan.devices) <= {"cpu"}:
            torch.default_generator.manual_seed(value)
        else:  # also asks after devices that are not here, which takes a millisecond
            torch.manual_seed(value)

    @abstractmethod
    def place(self, module: nn.Module) -> nn.Module:
        """The module on its devices and in the plan's memory format."""

    @abstractmethod
    def eval_copy(self, module: Module, values: Mapping[str, Tensor] | None = None) -> Module:
        """A placed module where the first clone computes, to predict with: itself or a copy as it is now, or
        a copy that has whole `values` in the place of its own (they must be given if it is not whole).
        """

    def local(self, tensor: Tensor) -> Tensor:
        """What this process has of a tensor of a placed module, of its optimizer, or laid out like those."""
        return tensor

    def gather_full_state(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Such tensors for the chief, as if there were one process. All replicas must come by with theirs."""
        return tensors

    def load_into(self, own: Tensor, value: Tensor) -> None:
        """Copies a whole value into such a tensor."""
        own.copy_(value)

    def slots(self, optimizer: Optimizer) -> Slots:
        """What the optimizer remembers, laid out like the parameters."""
        return slots_of(optimizer)

    def load_slots(self, optimizer: Optimizer, slots: Slots) -> None:
        """From whole ones. All replicas must come by."""
        load_slots(optimizer, slots, self.load_into)

    @abstractmethod
    def move(self, inputs: Tensor) -> Tensor:
        """Inputs of a batch where a lent module is, in the plan's memory format."""

    @abstractmethod
    def gradients(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        """Runs a step's forward and backward. Every parameter's gradient is then that of the sum of the
        losses over all samples divided by their weight, however the samples were split.

        Where memory runs out the step is done again in twice as many parts, and so are those after it. That
        changes nothing but the statistics of BatchNorms in training mode, which see one part at a time.
        """

    @abstractmethod
    def update(self, optimizer: Optimizer, *, max_norm: float | None) -> float:
        """Clips the gradient to `max_norm` if given, steps, clears; gives the norm before clipping. Where it
        is not finite no step is made: the parameters stay as they were.
        """

    @abstractmethod
    def discard(self, task: nn.Module) -> None:
        """In place of `update`, or after one that made no step: clears the gradients and puts the buffers
        (statistics of BatchNorms) back as they were before `gradients`.
        """

    @abstractmethod
    def state(self) -> dict[str, object]:
        """What a checkpoint must keep of the deployment, as JSON values: the same for all strategies, so that
        a run may go on with another.
        """

    @abstractmethod
    def load_state(self, state: dict[str, object]) -> None: ...

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self.set_up(undo)
            self._undo = undo.pop_all()
        return self

    def set_up(self, undo: ExitStack) -> None:
        """Prepares the process; what restores it goes onto `undo`. Strategies add to it."""
        self.devices.choose(self.own_clones[0].device)
        if self.plan.pinned:
            undo.enter_context(on_own_cores(*self.group.local_position))
        undo.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(self.plan.threads)
        switches: Sequence[Any] = (torch.backends.cuda.matmul, torch.backends.cudnn)
        for switch in switches:  # by themselves convolutions round, and products do not
            undo.callback(setattr, switch, "allow_tf32", switch.allow_tf32)
            switch.allow_tf32 = self.plan.precision == "tf32"
        if self.plan.memory_fraction is not None:
            undo.enter_context(self._limited_memory(self.plan.memory_fraction))
        if "cpu" in self.plan.devices:
            keep_freed_memory()

    def _limited_memory(self, fraction: float) -> AbstractContextManager[None]:
        """Replicas on one host share its main memory."""
        for clone in self.own_clones:
            if clone.device != "cpu":
                self.devices.limit(clone.device, fraction)
        share = usable_memory() / self.group.local_world_size
        if taken() >= fraction * share:
            least = math.ceil(100 * (taken() + _ROOM) / share) / 100
            raise BoxcrewError(
                f"deploy.memory_fraction={fraction:g}: {format_bytes(int(fraction * share))} a process, but "
                f"{format_bytes(taken())} are taken before the first step (plan: {self.plan.explain()[0]})",
                advice=f"deploy.memory_fraction={min(1.0, least):g} leaves {format_bytes(_ROOM)} for a step"
                if least <= 1
                else "fewer replicas, or a machine with more memory",
            )
        return limited(int(fraction * share))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.__exit__(kind, error, trace)


STRATEGIES: Registry[type[Deployment]] = Registry("strategy", "boxcrew.deploy.strategies")


def deploy(plan: Plan, devices: Devices | None = None, group: ReplicaGroup | None = None) -> Deployment:
    """`group`: the replicas this process is one of; without it, it is the only one."""
    return STRATEGIES.get(plan.strategy)(plan, devices or Devices(), group or ReplicaGroup())
