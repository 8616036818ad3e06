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
from boxcrew.deploy.deployment import STRATEGIES, Standing
from boxcrew.deploy.devices import Devices
from boxcrew.deploy.group import Group
from boxcrew.deploy.mail import Letter
from boxcrew.deploy.slots import Slots
from boxcrew.deploy.strategies.clones import Clones
from boxcrew.plan.plan import Plan


@STRATEGIES.register("parameter_server")
class ParameterServer(Clones):
    """Seen from a replica. What it has of the parameters is a copy, fetched after each step; the servers have
    the true ones (deploy/server.py). Its optimizer says how fast to go, theirs remember.

    Asynchronously every replica makes an update of its own in each step, by the part of the step that its
    share is, so that all of them together go about as far as they would synchronously. The losses that it
    tells are then those of its own samples.
    """

    def __init__(self, plan: Plan, devices: Devices, group: Group) -> None:
        super().__init__(plan, devices, group)
        self._is_synchronous = plan.staleness is None
        self._parameters: list[nn.Parameter] = []  # of the placed task
        self._slots: Slots | None = None  # as the servers told them last, if they still are so

    def set_up(self, undo: ExitStack) -> None:
        super().set_up(undo)
        undo.push(self._say_goodbye)

    def place(self, module: nn.Module) -> nn.Module:
        placed = super().place(module)
        with torch.no_grad():
            self.group.spread([*placed.parameters(), *placed.buffers()])
        self._parameters = list(placed.parameters())
        self._fill_servers(slots={}, plain=None)
        return placed

    def agree(self, standing: Standing) -> Standing:
        """Asynchronously not by meeting, which would bring all to the pace of the slowest: the first server
        keeps count, and lets all stop after the same step.
        """
        if self._is_synchronous:
            return super().agree(standing)
        words = {
            "elapsed": standing.elapsed,
            "stop": standing.stop,
            "interrupted": standing.interrupted,
        }
        told = self._ask(0, Letter(kind="stand", words=words)).words
        return Standing(elapsed=told["elapsed"], stop=told["stop"], interrupted=told["interrupted"])

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
        parts = [] if batch.is_blank else self.plan.dealt(self.group.rank, len(batch))
        if len(parts) < len(self.plan.micro_batches(self.plan.batch)):
            raise BoxcrewError(
                f"replica {self.group.rank} could not read a sample for a part of this step, and "
                "deploy.batch_norm=synced needs one of each",
                advice="a larger batch=, less deploy.accumulation=, or deploy.batch_norm=first",
            )

    def update(self, optimizer: Optimizer, *, max_norm: float | None) -> float:
        self._scaler.unscale_(optimizer)
        gradients = {str(i): p.grad for i, p in enumerate(self._parameters) if p.grad is not None}
        words: dict[str, Any] = {"rates": [group["lr"] for group in optimizer.param_groups]}
        norm = math.nan
        if self._is_synchronous:
            words["max_norm"] = max_norm
        else:
            norm = self._part(gradients, max_norm)
            gradients = gradients if math.isfinite(norm) else {}
        for server in range(self.plan.servers):
            mine = {name: value for name, value in gradients.items() if self.plan.keeper(int(name)) == server}
            self._send(server, Letter(kind="push", words=words, tensors=mine))
        for server in range(self.plan.servers):
            answer = self.group.mail.receive(self._rank_of(server))
            norm = answer.words["norm"] if self._is_synchronous else norm
            self._fetch(answer.tensors)
        self._slots = None
        self._scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return norm

    def slots(self, optimizer: Optimizer) -> Slots:  # noqa: ARG002
        """The chief alone asks for them."""
        if self._slots is None:
            told = [self._ask(server, Letter(kind="slots")) for server in range(self.plan.servers)]
            tensors = {name: value for answer in told for name, value in answer.tensors.items()}
            kind = told[0].words["plain"]["kind"]
            plain = {i: slots for answer in told for i, slots in answer.words["plain"]["slots"].items()}
            self._slots = Slots(tensors, {"kind": kind, "slots": plain})
        return self._slots

    def load_slots(self, optimizer: Optimizer, slots: Slots) -> None:
        """With the parameters, which have been taken already."""
        places = [p for group in optimizer.param_groups for p in group["params"]]
        number = {id(parameter): i for i, parameter in enumerate(self._parameters)}
        keepers = [self.plan.keeper(number[id(parameter)]) for parameter in places]
        self._fill_servers(slots=slots.tensors, plain=slots.plain, keepers=keepers)
        self._slots = None

    def _fill_servers(
        self,
        *,
        slots: Mapping[str, Tensor],
        plain: Mapping[str, Any] | None,
        keepers: list[int] | None = None,
    ) -> None:
        """`keepers`: of the optimizer's parameters, in its order."""
        if not self.is_chief:
            return
        for server in range(self.plan.servers):
            tensors = {
                str(i): p.detach() for i, p in enumerate(self._parameters) if self.plan.keeper(i) == server
            }
            words = None
            if plain is not None and keepers is not None:
                mine = {str(i) for i, keeper in enumerate(keepers) if keeper == server}
                tensors |= {name: value for name, value in slots.items() if name.partition(".")[0] in mine}
                rest = {i: values for i, values in plain["slots"].items() if i in mine}
                words = {**plain, "slots": rest}
            self._send(server, Letter(kind="fill", words={"plain": words}, tensors=tensors))

    def _part(self, gradients: Mapping[str, Tensor], max_norm: float | None) -> float:
        """Makes this replica's own gradient the part of a step that its share is; its norm before that."""
        values = list(gradients.values())
        if not values:
            return 0.0
        norm = float(self.norm(values))
        share = sum(clone.share for clone in self.plan.replicas[self.group.rank].clones)
        limit = 1.0 if max_norm is None else min(1.0, max_norm / (norm + 1e-6))
        torch._foreach_mul_(values, limit * share / self.plan.batch)
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
                self._send(server, Letter(kind="done"))
            self.group.mail.finish()

    def _ask(self, server: int, letter: Letter) -> Letter:
        self._send(server, letter)
        return self.group.mail.receive(self._rank_of(server))

    def _send(self, server: int, letter: Letter) -> None:
        self.group.mail.send(self._rank_of(server), letter)

    def _rank_of(self, server: int) -> int:
        return self.group.size + server
