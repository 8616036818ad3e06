"""A parameter server: keeps some of the parameters, and moves them by the gradients that replicas send."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from boxcrew.deploy.optimizer_state import Slots, load_slots, slots_of
from boxcrew.deploy.processes.collectives import Group
from boxcrew.deploy.processes.messages import Letter
from boxcrew.plan.plan import Plan


@dataclass(kw_only=True)
class _Stop:
    """When replicas that are at different steps are to stop, so that all do so after the same."""

    after: float = math.inf  # steps
    interrupted: bool = False
    elapsed: float | None = None  # by the chief's clock, once it has told

    def hear(self, letter: Letter, most_steps: int) -> None:
        if letter.sender == 0:
            self.elapsed = letter.words["elapsed"]
        if letter.words["stop"] and self.after == math.inf:
            self.after = most_steps + 1  # who is furthest may have begun another step already
        self.interrupted |= letter.words["interrupted"]


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

    def __init__(self, plan: Plan, group: Group, task: nn.Module, optimizer: Optimizer) -> None:
        self._plan = plan
        self._group = group
        self._optimizer = optimizer
        index = group.rank - group.size
        parameters = list(task.parameters())
        self._kept = {i: p for i, p in enumerate(parameters) if plan.keeper(i) == index}
        for i, parameter in enumerate(parameters):
            if i not in self._kept:
                parameter.data = torch.empty(0)  # the memory is for others to use
        self._replicas = _Replicas(steps=dict.fromkeys(range(group.size), 0))
        self._moved: set[int] = set()
        self._pushed: dict[int, Letter] = {}  # gradients that wait for those of the other replicas
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
            letter = self._group.mail.receive()
            answers[letter.kind](letter)
        self._group.mail.finish()

    def _fill(self, letter: Letter) -> None:
        """With what a run begins, goes on or goes back to."""
        with torch.no_grad():
            for name, value in letter.tensors.items():
                if name.isdigit():
                    self._kept[int(name)].copy_(value)
        self._optimizer.state.clear()
        if letter.words["plain"] is not None:
            slots = {name: value for name, value in letter.tensors.items() if not name.isdigit()}
            load_slots(self._optimizer, Slots(slots, letter.words["plain"]), Tensor.copy_)
        self._group.mail.send(letter.sender, Letter(kind="filled"))

    def _tell_slots(self, letter: Letter) -> None:
        """With the parameters that they belong to."""
        slots = slots_of(self._optimizer)
        values = {str(i): parameter.detach() for i, parameter in self._kept.items()}
        answer = Letter(kind="slots", words={"plain": slots.plain}, tensors={**slots.tensors, **values})
        self._group.mail.send(letter.sender, answer)

    def _tell_standing(self, letter: Letter) -> None:
        steps = self._replicas.steps
        self._stop.hear(letter, max(steps.values()))
        stop = steps[letter.sender] >= self._stop.after
        words = {
            "elapsed": letter.words["elapsed"] if self._stop.elapsed is None else self._stop.elapsed,
            "stop": stop,
            "interrupted": stop and self._stop.interrupted,
        }
        self._group.mail.send(letter.sender, Letter(kind="standing", words=words))

    def _let_go(self, letter: Letter) -> None:
        del self._replicas.steps[letter.sender]
        self._answer_waiting()

    def _move_together(self, letter: Letter) -> None:
        """Synchronously: once all replicas have sent their parts of the gradient, by the sum of them."""
        self._pushed[letter.sender] = letter
        if len(self._pushed) < self._group.size:
            return
        for rank in sorted(self._pushed):  # in the same order each time, so that sums are the same to the bit
            self._add(self._pushed[rank].tensors)
        gradients = {i: p.grad for i, p in self._kept.items() if p.grad is not None}
        square = torch.zeros((), dtype=torch.float64)
        for gradient in gradients.values():
            square += gradient.double().square().sum()
        self._group.add_among_servers(square)
        norm = float(square.sqrt())
        limit = letter.words["max_norm"]
        if limit is not None and gradients:
            torch._foreach_mul_(list(gradients.values()), min(1.0, limit / (norm + 1e-6)))
        if math.isfinite(norm):
            self._step(letter)
        self._optimizer.zero_grad(set_to_none=True)
        for rank in self._pushed:
            self._send_values(rank, gradients, norm)
        self._pushed = {}

    def _move_at_once(self, letter: Letter) -> None:
        """Asynchronously: by each replica's gradient as it comes. The answer may have to wait."""
        self._replicas.steps[letter.sender] += 1
        self.lead = max(self.lead, max(self._replicas.steps.values()) - min(self._replicas.steps.values()))
        if letter.tensors:
            self._add(letter.tensors)
            self._moved |= {int(name) for name in letter.tensors}
            self._step(letter)
            self._optimizer.zero_grad(set_to_none=True)
        self._replicas.waiting.append(letter.sender)
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

    def _step(self, letter: Letter) -> None:
        for group, rate in zip(self._optimizer.param_groups, letter.words["rates"], strict=True):
            group["lr"] = rate
        self._optimizer.step()

    def _send_values(self, rank: int, which: Iterable[int], norm: float) -> None:
        values = {str(i): self._kept[i].detach() for i in which}
        self._group.mail.send(rank, Letter(kind="values", words={"norm": norm}, tensors=values))
