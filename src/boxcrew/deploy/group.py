"""The replicas of a run, seen from one of them: what is added up over all, and what the chief tells."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from boxcrew.core.errors import BoxcrewError, UsageError
from boxcrew.deploy.pulse import Pulse, end_process
from boxcrew.deploy.seat import Seat

TIMEOUT = timedelta(hours=2)
"""For one message. Long, because a chief may evaluate for long: who is gone is noticed by the pulse."""
MEETING = timedelta(minutes=5)  # for all replicas to be there


class Group:
    """One replica alone: everything is said and added up already."""

    rank = 0
    size = 1

    @property
    def is_chief(self) -> bool:
        return self.rank == 0

    def add(self, tensor: Tensor) -> None:
        """Makes the tensor the sum of those of all replicas."""

    def add_later(self, tensor: Tensor) -> Pending:  # noqa: ARG002
        """The same while the caller goes on: not to be touched until waited for."""
        return Pending()

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """Makes the tensors what the chief's are."""

    def tell(self, value: Any) -> Any:
        """The chief's value, on all. JSON values."""
        return value

    def at_work(self) -> AbstractContextManager[None]:
        """Inside is what the others wait for: one that takes much longer than ever is stuck."""
        return nullcontext()

    def close(self) -> None: ...


class Pending:
    """Something under way; nothing, where one replica is alone."""

    def wait(self) -> None: ...


class _Message(Pending):
    def __init__(self, work: dist.Work, pulse: Pulse) -> None:
        self._work = work
        self._pulse = pulse

    def wait(self) -> None:
        with self._pulse.waiting():
            self._work.wait()


class Processes(Group):
    """Replicas in processes of their own, on one host or several."""

    def __init__(self, seat: Seat, *, backend: str = "gloo") -> None:
        self.rank, self.size = seat.rank, seat.size
        plain = _meeting_place(seat)
        store = PrefixStore("boxcrew", plain)
        _call_the_roll(store, seat)
        dist.init_process_group(backend, store=store, rank=seat.rank, world_size=seat.size, timeout=TIMEOUT)
        self._store = store
        self._told = 0
        # With a connection of its own: the other may be waiting for what the chief has to tell.
        board = PrefixStore("boxcrew", plain.clone())
        self._pulse = Pulse(board, rank=self.rank, size=self.size, on_loss=end_process)

    def add(self, tensor: Tensor) -> None:
        with self._pulse.waiting():
            dist.all_reduce(tensor)

    def add_later(self, tensor: Tensor) -> Pending:
        return _Message(dist.all_reduce(tensor, async_op=True), self._pulse)

    def spread(self, tensors: Sequence[Tensor]) -> None:
        with self._pulse.waiting():
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def tell(self, value: Any) -> Any:
        key = f"told/{self._told}"
        self._told += 1
        if self.is_chief:
            self._store.set(key, json.dumps(value))
            return value
        while True:
            # The chief may be busy for long, with data or a trial; one that is gone is another error.
            with contextlib.suppress(dist.DistStoreError):
                return json.loads(self._store.get(key))

    def at_work(self) -> AbstractContextManager[None]:
        return self._pulse.at_work()

    def close(self) -> None:
        self._pulse.close()
        dist.destroy_process_group()


def _meeting_place(seat: Seat) -> TCPStore:
    try:
        return TCPStore(
            seat.address,
            seat.port,
            is_master=seat.rank == 0 and not seat.hosted,
            timeout=MEETING,
            wait_for_workers=False,
        )
    except (dist.DistNetworkError, dist.DistStoreError) as error:
        raise UsageError(
            f"MASTER_ADDR={seat.address} MASTER_PORT={seat.port}: replicas cannot meet there: "
            f"{str(error).splitlines()[0]}",
            advice="another process may have the port: give another MASTER_PORT",
        ) from None


def _call_the_roll(store: PrefixStore, seat: Seat) -> None:
    """`BoxcrewError` that names who has not come."""
    store.set(f"here/{seat.rank}", "")
    end = time.monotonic() + MEETING.total_seconds()
    missing = list(range(seat.size))
    while missing := [rank for rank in missing if not store.check([f"here/{rank}"])]:
        if time.monotonic() > end:
            names = ", ".join(map(str, missing))
            raise BoxcrewError(
                f"replica {names} of {seat.size} has not come within {MEETING.total_seconds():.0f} s",
                advice="see what its own output says, and whether its host can reach "
                f"{seat.address}:{seat.port}",
            )
        time.sleep(0.05)
