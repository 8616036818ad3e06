"""Two ways to add up a bucket of gradients over replicas: in any order, or in the order of the clones.

In float32 a sum depends on the order of its terms, and an all_reduce has another for each number of replicas.
`OrderedSum` always has the same: ((clone 0 + clone 1) + clone 2) + …, whichever replica has computed which.
Every replica gets one segment of the bucket from all clones, adds it up, and gives the sum to all: as many
bytes as a ring's all_reduce if each replica has one clone (docs/decisions/0031).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor

from boxcrew.deploy.processes.collectives import ReplicaGroup, Wait


class PendingSum(ABC):
    """A sum that has begun. Each call sends messages, so all replicas must make them in the same order."""

    @abstractmethod
    def go_on(self) -> None:
        """Wait for the first messages, and send the last."""

    @abstractmethod
    def finish(self) -> None:
        """Wait for the last messages: the sum is then in the first row."""


class GradientSum(ABC):
    """A way to add up the gradients of all clones, of which this replica has some."""

    def __init__(self, group: ReplicaGroup) -> None:
        self._group = group
        self.num_rows = 1  # of a bucket: what this replica sends

    def padded(self, num: int) -> int:
        """Return the length of a row for so many numbers."""
        return num

    def row_of(self, clone: int) -> int:  # noqa: ARG002
        """Return the row for the gradients of one of this replica's clones; several are added up in it."""
        return 0

    @abstractmethod
    def begin(self, rows: Tensor) -> PendingSum:
        """Send the rows (num_rows, padded). They must not be touched until the sum is finished."""


class PlainSum(GradientSum):
    """The sum in the order of torch's all_reduce."""

    def begin(self, rows: Tensor) -> PendingSum:
        return _PendingPlain(self._group.all_reduce_async(rows[0]))


class _PendingPlain(PendingSum):
    def __init__(self, wait: Wait) -> None:
        self._wait = wait

    def go_on(self) -> None:
        """Do nothing: all messages are sent."""

    def finish(self) -> None:
        self._wait()


class OrderedSum(GradientSum):
    """The sum in the order of the clones: `dealt` has those of each replica."""

    def __init__(self, group: ReplicaGroup, dealt: Sequence[range]) -> None:
        super().__init__(group)
        self.rows_of = [1, *map(len, dealt[1:])]  # the first replica's clones are the begin of the sum
        self.num_rows = self.rows_of[group.rank]

    def padded(self, num: int) -> int:
        replicas = len(self.rows_of)
        return -(-num // replicas) * replicas

    def row_of(self, clone: int) -> int:
        return 0 if self._group.rank == 0 else clone

    def begin(self, rows: Tensor) -> PendingSum:
        return _PendingOrdered(self, self._group, rows)


class _PendingOrdered(PendingSum):
    def __init__(self, parent: OrderedSum, group: ReplicaGroup, rows: Tensor) -> None:
        self._group, self._rows = group, rows
        num = len(parent.rows_of)
        size = rows.shape[1] // num  # of a segment
        sent = rows if len(rows) == 1 else rows.view(len(rows), num, size).transpose(0, 1).contiguous()
        self._segments = rows.new_empty(sum(parent.rows_of), size)
        sizes = [size * each for each in parent.rows_of]
        own = [len(rows) * size] * num
        self._wait = group.all_to_all_async(self._segments.view(-1), sent.view(-1), sizes, own)

    def go_on(self) -> None:
        self._wait()
        total = self._segments[0]
        for segment in self._segments[1:]:
            total += segment
        self._wait = self._group.all_gather_async(self._rows[0], total)

    def finish(self) -> None:
        self._wait()


def gradient_sum(group: ReplicaGroup, dealt: Sequence[range], *, exact: bool) -> GradientSum:
    """Return how to add up. The sum of two terms does not depend on their order, whoever computes it."""
    if exact and 1 + sum(map(len, dealt[1:])) > 2:
        return OrderedSum(group, dealt)
    return PlainSum(group)
