"""A parameter server: keeps some of the parameters, and moves them by the gradients that replicas send."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from boxcrew.deploy.optimizer_state import Slots, load_slots, slots_of
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.processes.messages import Message
from boxcrew.plan.plan import Plan


@dataclass(kw_only=True)
class _Stop:
    """When replicas that are at different steps are to stop, so that all do so after the same."""

    after: float = math.inf  # steps
    interrupted: bool = False
    elapsed: float | None = None  # by the chief's clock, once it has told

    def hear(self, message: Message, most_steps: int) -> None:
        if message.sender == 0:
            self.elapsed = message.words["elapsed"]
        if message.words["stop"] and self.after == math.inf:
            self.after = most_steps + 1  # who is furthest may have begun another step already
        self.interrupted |= message.words["interrupted"]


@dataclass(kw_only=True)
class _Replicas:
    """Those that are still at work: how many steps each has sent, and who waits for an answer."""

    steps: dict[int, int]
    waiting: list[int] = field(default_factory=list)

    def may_go_on(self, rank: int, staleness: int) -> bool:
        """Not if it is too many steps ahead of another."""
        return self.steps.get(rank, 0) - min(self.steps.values(), default=0) <= staleness


class Server:
    """For the parameters that the plan has it keep, with an optimizer for all of the task's: those that it
    does not keep never have a gradient, and so are never touched.
    """

    def __init__(self, plan: Plan, group: ReplicaGroup, task: nn.Module, optimizer: Optimizer) -> None:
        self._plan = plan
        self._group = group
        self._optimizer = optimizer
        index = group.rank - group.size
        parameters = list(task.parameters())
        self._kept = {i: p for i, p in enumerate(parameters) if plan.server_of(i) == index}
        for i, parameter in enumerate(parameters):
            if i not in self._kept:
                parameter.data = torch.empty(0)  # the memory is for others to use
        self._replicas = _Replicas(steps=dict.fromkeys(range(group.size), 0))
        self._moved: set[int] = set()
        self._pushed: dict[int, Message] = {}  # gradients that wait for those of the other replicas
        self._stop = _Stop()
        self.lead = 0  # the most steps that one replica has been ahead of another

    @property
    def num_kept(self) -> int:
        return len(self._kept)

    def run(self) -> None:
        """Until every replica has ended."""
        answers = {
            "fill": self._fill,
            "slots": self._tell_slots,
            "stand": self._tell_standing,
            "push": self._move_together if self._plan.staleness is None else self._move_at_once,
            "done": self._let_go,
        }
        while self._replicas.steps:
            message = self._group.messages.receive()
            answers[message.kind](message)
        self._group.messages.finish()

    def _fill(self, message: Message) -> None:
        """With what a run begins, goes on or goes back to."""
        with torch.no_grad():
            for name, value in message.tensors.items():
                if name.isdigit():
                    self._kept[int(name)].copy_(value)
        self._optimizer.state.clear()
        if message.words["plain"] is not None:
            slots = {name: value for name, value in message.tensors.items() if not name.isdigit()}
            load_slots(self._optimizer, Slots(slots, message.words["plain"]), Tensor.copy_)
        self._group.messages.send(message.sender, Message(kind="filled"))

    def _tell_slots(self, message: Message) -> None:
        """With the parameters that they belong to."""
        slots = slots_of(self._optimizer)
        values = {str(i): parameter.detach() for i, parameter in self._kept.items()}
        answer = Message(kind="slots", words={"plain": slots.plain}, tensors={**slots.tensors, **values})
        self._group.messages.send(message.sender, answer)

    def _tell_standing(self, message: Message) -> None:
        steps = self._replicas.steps
        self._stop.hear(message, max(steps.values()))
        stop = steps[message.sender] >= self._stop.after
        words = {
            "elapsed": message.words["elapsed"] if self._stop.elapsed is None else self._stop.elapsed,
            "stop": stop,
            "interrupted": stop and self._stop.interrupted,
        }
        self._group.messages.send(message.sender, Message(kind="standing", words=words))

    def _let_go(self, message: Message) -> None:
        del self._replicas.steps[message.sender]
        self._answer_waiting()

    def _move_together(self, message: Message) -> None:
        """Synchronously: once all replicas have sent their parts of the gradient, by the sum of them."""
        self._pushed[message.sender] = message
        if len(self._pushed) < self._group.size:
            return
        for rank in sorted(self._pushed):  # in the same order each time, so that sums are the same to the bit
            self._add(self._pushed[rank].tensors)
        gradients = {i: p.grad for i, p in self._kept.items() if p.grad is not None}
        square = torch.zeros((), dtype=torch.float64)
        for gradient in gradients.values():
            square += gradient.double().square().sum()
        self._group.all_reduce_servers(square)
        norm = float(square.sqrt())
        limit = message.words["max_norm"]
        if limit is not None and gradients:
            torch._foreach_mul_(list(gradients.values()), min(1.0, limit / (norm + 1e-6)))
        if math.isfinite(norm):
            self._step(message)
        self._optimizer.zero_grad(set_to_none=True)
        for rank in self._pushed:
            self._send_values(rank, gradients, norm)
        self._pushed = {}

    def _move_at_once(self, message: Message) -> None:
        """Asynchronously: by each replica's gradient as it comes. The answer may have to wait."""
        self._replicas.steps[message.sender] += 1
        self.lead = max(self.lead, max(self._replicas.steps.values()) - min(self._replicas.steps.values()))
        if message.tensors:
            self._add(message.tensors)
            self._moved |= {int(name) for name in message.tensors}
            self._step(message)
            self._optimizer.zero_grad(set_to_none=True)
        self._replicas.waiting.append(message.sender)
        self._answer_waiting()

    def _answer_waiting(self) -> None:
        staleness = self._plan.staleness
        if staleness is None:
            return
        for rank in [one for one in self._replicas.waiting if self._replicas.may_go_on(one, staleness)]:
            self._replicas.waiting.remove(rank)
            self._send_values(rank, self._moved, math.nan)

    def _add(self, gradients: Mapping[str, Tensor]) -> None:
        for name, value in gradients.items():
            parameter = self._kept[int(name)]
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter).copy_(value)
            else:
                parameter.grad += value

    def _step(self, message: Message) -> None:
        for group, rate in zip(self._optimizer.param_groups, message.words["rates"], strict=True):
            group["lr"] = rate
        self._optimizer.step()

    def _send_values(self, rank: int, which: Iterable[int], norm: float) -> None:
        values = {str(i): self._kept[i].detach() for i in which}
        self._group.messages.send(rank, Message(kind="values", words={"norm": norm}, tensors=values))
