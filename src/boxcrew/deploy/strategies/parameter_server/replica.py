"""The parameter-server strategy in a replica: it fetches parameters from the servers and sends gradients.

Synchronously all replicas make one update together, as one process would; asynchronously each makes its own,
but never too many steps ahead of another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.torch_tools.foreach import multiply_all
from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import STRATEGIES, StepSums
from boxcrew.deploy.devices import Devices
from boxcrew.deploy.execution import RunStatus
from boxcrew.deploy.optimizer_state import OptimizerState
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.processes.messages import Message
from boxcrew.deploy.strategies.clones import Clones
from boxcrew.plan.plan import Plan


@STRATEGIES.register("parameter_server")
class ParameterServerReplica(Clones):
    """A replica whose parameters are copies, fetched after each step; the servers update the originals
    (server.py). Its optimizer has the learning rates, theirs have the state.

    Asynchronously every replica makes an update of its own in each step, at the fraction of the learning rate
    that its share is of the step, so that all together go about as far as they would synchronously. The
    losses that it returns are then those of its own samples.
    """

    def __init__(self, plan: Plan, devices: Devices, group: ReplicaGroup) -> None:
        super().__init__(plan, devices, group)
        self._is_synchronous = plan.staleness is None
        self._parameters: list[nn.Parameter] = []  # of the placed task
        self._slots: OptimizerState | None = None  # as the servers sent them last; None: changed since
        self._is_open = False  # whether a step was computed, but not sent

    def set_up(self, undo: ExitStack) -> None:
        super().set_up(undo)
        undo.push(self._send_done)

    def setup_module(self, module: nn.Module) -> nn.Module:
        placed = super().setup_module(module)
        self.broadcast(placed)
        self._parameters = list(placed.parameters())
        self._fill_servers()
        return placed

    def barrier(self) -> None:
        if self._is_synchronous:
            super().barrier()

    def finalize(self) -> None:
        """Fetch the updates that others have made after this replica's last step."""
        if not self._is_synchronous:
            super().barrier()
            if self.is_chief:
                self._slots = self._ask_slots()

    def all_reduce_status(self, status: RunStatus) -> RunStatus:
        """Asynchronously ask the first server, which counts steps: a collective would slow all down."""
        if self._is_synchronous:
            return super().all_reduce_status(status)
        return RunStatus(**self._ask(0, Message(kind="status", data=asdict(status))).data)

    def forward_backward(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        if self.plan.batch_norm == "synced" and len(self.plan.replicas) > 1:
            split = self.execution.plan.replica_split(self.group.rank, len(batch))
            if batch.is_blank or not all(map(any, split)):
                raise BoxcrewError(
                    f"replica {self.group.rank} could not read a sample for a part of this step, and "
                    "deploy.batch_norm=synced needs one for each",
                    advice="a larger batch=, less deploy.accumulation=, or deploy.batch_norm=first",
                )
        if batch.is_blank:
            own = self.compute(task, batch, phase, self.device, counts=False)
            self.restore_buffers(task)
        else:
            own = super().forward_backward(task, batch, phase)
        if not self._is_synchronous:
            return own
        sums = StepSums(losses=own, num_samples=0 if batch.is_blank else len(batch))
        return self.all_reduce_losses([(0, sums)]).losses

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
            own = list(gradients.values())
            norm = float(self.norm(own))
            if max_norm is not None and norm > max_norm:
                multiply_all(own, max_norm / (norm + 1e-6))
            share = sum(clone.share for clone in self.own_clones) / self.plan.batch
            self._push(gradients if math.isfinite(norm) else {}, rates=[share * rate for rate in rates])
        self._scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return norm

    def discard(self, task: nn.Module) -> None:
        super().discard(task)
        if self._is_open and not self._is_synchronous:
            self._push({}, rates=[])  # it still counts as a step: the others must not wait for it

    def _push(
        self, gradients: Mapping[str, Tensor], *, rates: list[float], max_norm: float | None = None
    ) -> float:
        """Send a step to the servers and fetch the updated parameters. Return the norm, NaN if not known."""
        self._is_open, self._slots = False, None
        data = {"rates": rates, "max_norm": max_norm}
        for server in range(self.plan.servers):
            mine = {name: g for name, g in gradients.items() if self.plan.server_of(int(name)) == server}
            self._send(server, Message(kind="push", data=data, tensors=mine))
        answers = [self._receive(server) for server in range(self.plan.servers)]
        for answer in answers:
            self._fetch(answer.tensors)
        return float(answers[0].data["norm"])

    def slots(self, optimizer: Optimizer) -> OptimizerState:  # noqa: ARG002
        """Fetch the servers' state with the parameters that belong to it. Only the chief asks for them."""
        if self._slots is None:
            self._slots = self._ask_slots()
        return self._slots

    def _ask_slots(self) -> OptimizerState:
        answers = [self._ask(server, Message(kind="slots")) for server in range(self.plan.servers)]
        tensors = {name: value for answer in answers for name, value in answer.tensors.items()}
        self._fetch({name: value for name, value in tensors.items() if name.isdigit()})
        plain = {i: slots for answer in answers for i, slots in answer.data["plain"]["slots"].items()}
        return OptimizerState(
            {name: value for name, value in tensors.items() if not name.isdigit()},
            {"kind": answers[0].data["plain"]["kind"], "slots": plain},
        )

    def load_optimizer_state(self, optimizer: Optimizer, slots: OptimizerState) -> None:
        """Send the state to the servers, with the parameters, which have been loaded already."""
        index = {parameter: i for i, parameter in enumerate(self._parameters)}
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._fill_servers(slots, [self.plan.server_of(index[parameter]) for parameter in parameters])
        self._slots = None

    def _fill_servers(self, slots: OptimizerState | None = None, keepers: Sequence[int] = ()) -> None:
        """Send the chief's parameters and optimizer state to the servers; all replicas wait for that.
        `keepers` has the server of each of the optimizer's parameters, in its order.
        """
        for server in range(self.plan.servers) if self.is_chief else ():
            kept = [i for i in range(len(self._parameters)) if self.plan.server_of(i) == server]
            tensors, plain = {str(i): self._parameters[i].detach() for i in kept}, None
            if slots is not None:
                mine = {str(i) for i, keeper in enumerate(keepers) if keeper == server}
                tensors |= {name: t for name, t in slots.tensors.items() if name.partition(".")[0] in mine}
                rest = {i: values for i, values in slots.plain["slots"].items() if i in mine}
                plain = {**slots.plain, "slots": rest}
            self._ask(server, Message(kind="fill", data={"plain": plain}, tensors=tensors))
        super().barrier()

    @torch.no_grad()
    def _fetch(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            self._parameters[int(name)].copy_(value)

    def _send_done(self, kind: type[BaseException] | None, *_: object) -> None:
        """Tell the servers, which end when all replicas have, unless this one has failed."""
        if kind is None:
            for server in range(self.plan.servers):
                self._send(server, Message(kind="done"))
            self.group.messages.finish()

    def _ask(self, server: int, message: Message) -> Message:
        self._send(server, message)
        return self._receive(server)

    def _send(self, server: int, message: Message) -> None:
        self.group.messages.send(self.group.num_replicas + server, message)

    def _receive(self, server: int) -> Message:
        return self.group.messages.receive(self.group.num_replicas + server)
