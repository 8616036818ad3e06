"""Parameters in processes of their own, the parameter servers: replicas fetch them, compute with them, send
gradients. Together, as one process would; or each at its own pace, but never too far ahead of another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import STRATEGIES, RunStatus
from boxcrew.deploy.devices import Devices
from boxcrew.deploy.optimizer_state import Slots
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.processes.messages import Message
from boxcrew.deploy.strategies.clones import Clones
from boxcrew.plan.plan import Plan


@STRATEGIES.register("parameter_server")
class ParameterServer(Clones):
    """Seen from a replica. What it has of the parameters is a copy, fetched after each step; the servers have
    the true ones (server.py). Its optimizer says how fast to go, theirs remember.

    Asynchronously every replica makes an update of its own in each step, at the part of the rate that its
    share is of the step, so that all of them together go about as far as they would synchronously. The losses
    that it tells are then those of its own samples.
    """

    def __init__(self, plan: Plan, devices: Devices, group: ReplicaGroup) -> None:
        super().__init__(plan, devices, group)
        self._is_synchronous = plan.staleness is None
        self._parameters: list[nn.Parameter] = []  # of the placed task
        self._slots: Slots | None = None  # as the servers told them last, if they still are so
        self._is_open = False  # whether a step has been computed, and not been sent

    def set_up(self, undo: ExitStack) -> None:
        super().set_up(undo)
        undo.push(self._say_goodbye)

    def place(self, module: nn.Module) -> nn.Module:
        placed = super().place(module)
        self.broadcast(placed)
        self._parameters = list(placed.parameters())
        self._fill_servers(slots={}, plain=None)
        return placed

    def barrier(self) -> None:
        if self._is_synchronous:
            super().barrier()

    def finalize(self) -> None:
        """All have sent what they had; what came after this one's last step has to be fetched."""
        if not self._is_synchronous:
            super().barrier()
            if self.is_chief:
                self._slots = self._ask_slots()

    def all_reduce_status(self, status: RunStatus) -> RunStatus:
        """Asynchronously not by meeting, which would bring all to the pace of the slowest: the first server
        keeps count, and lets all stop after the same step.
        """
        if self._is_synchronous:
            return super().all_reduce_status(status)
        words = {
            "elapsed": status.elapsed,
            "stop": status.stop,
            "interrupted": status.interrupted,
        }
        told = self._ask(0, Message(kind="stand", words=words)).words
        return RunStatus(elapsed=told["elapsed"], stop=told["stop"], interrupted=told["interrupted"])

    def add_up(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        self._require_all_parts(batch)
        if batch.is_blank:
            own = self.compute(task, batch, phase, self.device, counts=False)
            self.put_buffers_back(task)
        else:
            own = super().add_up(task, batch, phase)
        if not self._is_synchronous:
            return own
        return self.add_sums(own, 0 if batch.is_blank else len(batch))[0]

    def _require_all_parts(self, batch: Batch) -> None:
        """Replicas that meet at every BatchNorm all need something to compute there."""
        if self.plan.batch_norm != "synced" or len(self.plan.replicas) == 1:
            return
        if batch.is_blank or not all(map(any, self.plan.replica_split(self.group.rank, len(batch)))):
            raise BoxcrewError(
                f"replica {self.group.rank} could not read a sample for a part of this step, and "
                "deploy.batch_norm=synced needs one of each",
                advice="a larger batch=, less deploy.accumulation=, or deploy.batch_norm=first",
            )

    def gradients(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        total = super().gradients(task, batch, phase)
        self._is_open = True
        return total

    def update(self, optimizer: Optimizer, *, max_norm: float | None) -> float:
        self._scaler.unscale_(optimizer)
        gradients = {str(i): p.grad for i, p in enumerate(self._parameters) if p.grad is not None}
        rates = [group["lr"] for group in optimizer.param_groups]
        if self._is_synchronous:
            norm = self._push(gradients, rates=rates, max_norm=max_norm)
        else:
            norm = self._clip(gradients, max_norm)
            part = sum(clone.share for clone in self.own_clones) / self.plan.batch
            self._push(gradients if math.isfinite(norm) else {}, rates=[part * rate for rate in rates])
        self._scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return norm

    def discard(self, task: nn.Module) -> None:
        super().discard(task)
        if self._is_open and not self._is_synchronous:
            self._push({}, rates=[])  # a step that is left out is a step: the others are not to wait for it

    def _push(
        self, gradients: Mapping[str, Tensor], *, rates: list[float], max_norm: float | None = None
    ) -> float:
        """Sends a step to the servers and fetches what they make of it; the norm, if they know it."""
        self._is_open, self._slots = False, None
        words = {"rates": rates, "max_norm": max_norm}
        for server in range(self.plan.servers):
            mine = {
                name: value for name, value in gradients.items() if self.plan.server_of(int(name)) == server
            }
            self._send(server, Message(kind="push", words=words, tensors=mine))
        answers = [self.group.messages.receive(self._rank_of(server)) for server in range(self.plan.servers)]
        for answer in answers:
            self._fetch(answer.tensors)
        return float(answers[0].words["norm"])

    def slots(self, optimizer: Optimizer) -> Slots:  # noqa: ARG002
        """The chief alone asks for them; its parameters are then those that they belong to."""
        if self._slots is None:
            self._slots = self._ask_slots()
        return self._slots

    def _ask_slots(self) -> Slots:
        told = [self._ask(server, Message(kind="slots")) for server in range(self.plan.servers)]
        tensors = {name: value for answer in told for name, value in answer.tensors.items()}
        self._fetch({name: value for name, value in tensors.items() if name.isdigit()})
        plain = {i: slots for answer in told for i, slots in answer.words["plain"]["slots"].items()}
        return Slots(
            {name: value for name, value in tensors.items() if not name.isdigit()},
            {"kind": told[0].words["plain"]["kind"], "slots": plain},
        )

    def load_slots(self, optimizer: Optimizer, slots: Slots) -> None:
        """With the parameters, which have been taken already."""
        places = [p for group in optimizer.param_groups for p in group["params"]]
        number = {id(parameter): i for i, parameter in enumerate(self._parameters)}
        keepers = [self.plan.server_of(number[id(parameter)]) for parameter in places]
        self._fill_servers(slots=slots.tensors, plain=slots.plain, keepers=keepers)
        self._slots = None

    def _fill_servers(
        self,
        *,
        slots: Mapping[str, Tensor],
        plain: Mapping[str, Any] | None,
        keepers: list[int] | None = None,
    ) -> None:
        """`keepers`: of the optimizer's parameters, in its order. No replica goes on before all is there."""
        for server in range(self.plan.servers) if self.is_chief else ():
            tensors = {
                str(i): p.detach() for i, p in enumerate(self._parameters) if self.plan.server_of(i) == server
            }
            words = None
            if plain is not None and keepers is not None:
                mine = {str(i) for i, keeper in enumerate(keepers) if keeper == server}
                tensors |= {name: value for name, value in slots.items() if name.partition(".")[0] in mine}
                rest = {i: values for i, values in plain["slots"].items() if i in mine}
                words = {**plain, "slots": rest}
            self._ask(server, Message(kind="fill", words={"plain": words}, tensors=tensors))
        super().barrier()

    def _clip(self, gradients: Mapping[str, Tensor], max_norm: float | None) -> float:
        """Of this replica's own gradient; gives its norm before that."""
        values = list(gradients.values())
        norm = float(self.norm(values))
        if max_norm is not None and norm > max_norm:
            torch._foreach_mul_(values, max_norm / (norm + 1e-6))
        return norm

    @torch.no_grad()
    def _fetch(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            self._parameters[int(name)].copy_(value)

    def _say_goodbye(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,  # noqa: ARG002
        trace: TracebackType | None,  # noqa: ARG002
    ) -> None:
        """The servers end when all have. Who failed says nothing, and is missed."""
        if kind is None:
            for server in range(self.plan.servers):
                self._send(server, Message(kind="done"))
            self.group.messages.finish()

    def _ask(self, server: int, message: Message) -> Message:
        self._send(server, message)
        return self.group.messages.receive(self._rank_of(server))

    def _send(self, server: int, message: Message) -> None:
        self.group.messages.send(self._rank_of(server), message)

    def _rank_of(self, server: int) -> int:
        return self.group.size + server
