"""A parameter server: keeps some of the parameters, and updates them by the gradients that replicas send."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from boxcrew.core.torch_tools.foreach import multiply_all
from boxcrew.deploy.optimizer_state import OptimizerState, load_optimizer_state, read_optimizer_state
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.processes.messages import Message
from boxcrew.plan.plan import Plan


class ParameterServerProcess:
    """A process that keeps the parameters the plan assigns to it. Its optimizer is for all of the task's:
    those that are kept elsewhere never have a gradient, and so are never touched.
    """

    def __init__(self, plan: Plan, group: ReplicaGroup, task: nn.Module, optimizer: Optimizer) -> None:
        self._plan, self._group, self._optimizer = plan, group, optimizer
        self._kept: dict[int, nn.Parameter] = {}
        for i, parameter in enumerate(task.parameters()):
            if plan.server_of(i) == group.rank - group.num_replicas:
                self._kept[i] = parameter
            else:
                parameter.data = torch.empty(0)  # frees its memory
        self.num_kept = len(self._kept)
        self._steps = dict.fromkeys(range(group.num_replicas), 0)  # sent by each replica that has not ended
        self._waiting: list[int] = []  # replicas whose step is not answered yet
        self._updated: set[int] = set()
        self._pushed: dict[int, Message] = {}  # gradients that wait for those of the other replicas
        # All replicas stop after the same step, although they are at different ones when the first asks to.
        self._last_step = math.inf
        self._interrupted = False
        self._elapsed: float | None = None  # seconds by the chief's clock, once it has sent a status
        self.lead = 0  # the most steps that one replica has been ahead of another

    def run(self) -> None:
        """Answer messages until every replica has ended."""
        handlers = {
            "fill": self._fill,
            "slots": self._send_slots,
            "status": self._send_status,
            "push": self._update_together if self._plan.staleness is None else self._update_at_once,
            "done": self._remove_replica,
        }
        while self._steps:
            message = self._group.messages.receive()
            handlers[message.kind](message)
        self._group.messages.finish()

    def _fill(self, message: Message) -> None:
        """Replace parameters and optimizer state by those that a run begins, resumes or goes back to."""
        with torch.no_grad():
            for name, value in message.tensors.items():
                if name.isdigit():
                    self._kept[int(name)].copy_(value)
        self._optimizer.state.clear()
        if message.data["plain"] is not None:
            slots = {name: value for name, value in message.tensors.items() if not name.isdigit()}
            load_optimizer_state(self._optimizer, OptimizerState(slots, message.data["plain"]), Tensor.copy_)
        self._group.messages.send(message.sender, Message(kind="filled"))

    def _send_slots(self, message: Message) -> None:
        """Send the optimizer's state, and the parameters it belongs to."""
        slots = read_optimizer_state(self._optimizer)
        values = {str(i): parameter.detach() for i, parameter in self._kept.items()}
        answer = Message(kind="slots", data={"plain": slots.plain}, tensors={**slots.tensors, **values})
        self._group.messages.send(message.sender, answer)

    def _send_status(self, message: Message) -> None:
        if message.sender == 0:
            self._elapsed = message.data["elapsed"]
        if message.data["stop"] and self._last_step == math.inf:
            self._last_step = max(self._steps.values()) + 1  # the furthest may have begun another already
        self._interrupted |= message.data["interrupted"]
        stop = self._steps[message.sender] >= self._last_step
        elapsed = message.data["elapsed"] if self._elapsed is None else self._elapsed
        data = {"elapsed": elapsed, "stop": stop, "interrupted": stop and self._interrupted}
        self._group.messages.send(message.sender, Message(kind="status", data=data))

    def _remove_replica(self, message: Message) -> None:
        del self._steps[message.sender]
        self._answer_waiting()

    def _update_together(self, message: Message) -> None:
        """Update synchronously: by the sum of the gradients, once all replicas have sent theirs."""
        self._pushed[message.sender] = message
        if len(self._pushed) < self._group.num_replicas:
            return
        for rank in sorted(self._pushed):  # in the same order each time, so that sums are the same to the bit
            self._add(self._pushed[rank].tensors)
        gradients = {i: p.grad for i, p in self._kept.items() if p.grad is not None}
        square = torch.zeros((), dtype=torch.float64)
        for gradient in gradients.values():
            square += gradient.double().square().sum()
        self._group.all_reduce_servers(square)
        norm = float(square.sqrt())
        limit = message.data["max_norm"]
        if limit is not None and gradients:
            multiply_all(list(gradients.values()), min(1.0, limit / (norm + 1e-6)))
        if math.isfinite(norm):
            self._step(message)
        self._optimizer.zero_grad(set_to_none=True)
        for rank in self._pushed:
            self._send_values(rank, gradients, norm)
        self._pushed = {}

    def _update_at_once(self, message: Message) -> None:
        """Update asynchronously: by each replica's gradient as it comes. The answer may have to wait."""
        self._steps[message.sender] += 1
        self.lead = max(self.lead, max(self._steps.values()) - min(self._steps.values()))
        if message.tensors:
            self._add(message.tensors)
            self._updated |= {int(name) for name in message.tensors}
            self._step(message)
            self._optimizer.zero_grad(set_to_none=True)
        self._waiting.append(message.sender)
        self._answer_waiting()

    def _answer_waiting(self) -> None:
        """Answer those that are not too many steps ahead of the slowest; synchronously none waits here."""
        limit = min(self._steps.values(), default=0) + (self._plan.staleness or 0)
        for rank in [rank for rank in self._waiting if self._steps.get(rank, 0) <= limit]:
            self._waiting.remove(rank)
            self._send_values(rank, self._updated, math.nan)

    def _add(self, gradients: Mapping[str, Tensor]) -> None:
        for name, value in gradients.items():
            parameter = self._kept[int(name)]
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter).copy_(value)
            else:
                parameter.grad += value

    def _step(self, message: Message) -> None:
        for group, rate in zip(self._optimizer.param_groups, message.data["rates"], strict=True):
            group["lr"] = rate
        self._optimizer.step()

    def _send_values(self, rank: int, indices: Iterable[int], norm: float) -> None:
        values = {str(i): self._kept[i].detach() for i in indices}
        self._group.messages.send(rank, Message(kind="values", data={"norm": norm}, tensors=values))
