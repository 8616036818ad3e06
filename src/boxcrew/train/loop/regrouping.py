"""Points of a training at which all replicas agree, and what they do when one is lost between two of them.

Every message of a training belongs to the way to a *point*: an all_reduce that nobody passes before all have
come to it. So when a replica is lost, the others are at most one point apart. Those that have not passed
the next point, although another has, may pass it too, with what was agreed there: they have done all that
leads to it. If nobody has passed it, all undo what they have begun since the last one, and do it again in
the new group. Nothing is read from files, and no parameters are sent: every replica has all of them
(docs/decisions/0034).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from boxcrew.deploy.deployment import Deployment
from boxcrew.deploy.execution import RunStatus
from boxcrew.deploy.processes.membership import Generation, ReplicaLostError

Done = TypeVar("Done")


@dataclass(eq=False, repr=False)
class Points:
    """The points that this replica has passed. `on_change` is called in every new group, and may fail if
    another replica is lost meanwhile.
    """

    deployment: Deployment
    on_change: Callable[[Generation], None]
    passed: int = 0  # below zero in a replica that joins: it has no state yet
    _agreed: RunStatus = field(default=RunStatus(elapsed=0.0, stop=False, interrupted=False), init=False)

    def pass_next(
        self, status: RunStatus, work: Callable[[], Done], undo: Callable[[], None] = lambda: None
    ) -> tuple[RunStatus, Done]:
        """Do the work that leads to the next point, and pass it; return what was agreed there, and what the
        work has returned. If a replica is lost meanwhile, the others do both again, after `undo`.
        """
        while True:
            results: list[Done] = []
            agreed: RunStatus | None = None
            try:
                results.append(work())
                agreed = self.deployment.all_reduce_status(status)
            except ReplicaLostError:
                if not self.deployment.can_regroup:
                    raise
            # Not in the `except`: the error refers to connections, which must be closed now.
            if agreed is None and not results:
                undo()
            if agreed is None:
                agreed = self.regroup()
            if agreed is not None and results:
                self.passed, self._agreed = self.passed + 1, agreed
                return agreed, results[0]
            if results:
                undo()

    def regroup(self) -> RunStatus | None:
        """Go on with the members that were announced last. Return what was agreed at the next point if
        another of them has passed it, else None.
        """
        group = self.deployment.group
        while True:
            try:
                generation = group.regroup()
                self.deployment.regroup(group)
                passed, agreed = self._furthest()
                is_ahead = 0 <= self.passed < passed
                self.on_change(generation)
                self.passed = passed if self.passed < 0 else self.passed
            except ReplicaLostError:
                continue
            if group.is_chief:
                group.mark_met()
            return agreed if is_ahead else None

    def _furthest(self) -> tuple[int, RunStatus]:
        """Return how many points the furthest member has passed, and what was agreed there. Collective."""
        group = self.deployment.group
        rows = torch.zeros(group.num_replicas, 5, dtype=torch.float64)
        rows[group.rank] = torch.tensor((self.passed, *self._agreed.numbers()))
        group.all_reduce(rows)
        passed, *agreed = max(rows.tolist())
        return int(passed), RunStatus.of(agreed)
