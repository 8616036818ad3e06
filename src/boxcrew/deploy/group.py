"""The replicas of a run, seen from one of them: what is added up over all, and what the chief tells."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from boxcrew.core.errors import UsageError
from boxcrew.deploy.seat import Seat

TIMEOUT = timedelta(minutes=10)


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

    def close(self) -> None: ...


class Pending:
    """Something under way."""

    def __init__(self, work: dist.Work | None = None) -> None:
        self._work = work

    def wait(self) -> None:
        if self._work is not None:
            self._work.wait()


class Processes(Group):
    """Replicas in processes of their own, on one host or several."""

    def __init__(self, seat: Seat, *, backend: str = "gloo") -> None:
        self.rank, self.size = seat.rank, seat.size
        keeps_store = seat.rank == 0 and not seat.hosted
        try:
            plain = TCPStore(seat.address, seat.port, seat.size, is_master=keeps_store, timeout=TIMEOUT)
        except dist.DistNetworkError as error:
            raise UsageError(
                f"MASTER_ADDR={seat.address} MASTER_PORT={seat.port}: replicas cannot meet there: "
                f"{str(error).splitlines()[0]}",
                advice="another process may have the port: give another MASTER_PORT",
            ) from None
        store = PrefixStore("boxcrew", plain)
        dist.init_process_group(backend, store=store, rank=seat.rank, world_size=seat.size, timeout=TIMEOUT)
        self._store = store
        self._told = 0

    def add(self, tensor: Tensor) -> None:
        dist.all_reduce(tensor)

    def add_later(self, tensor: Tensor) -> Pending:
        return Pending(dist.all_reduce(tensor, async_op=True))

    def spread(self, tensors: Sequence[Tensor]) -> None:
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

    def close(self) -> None:
        dist.destroy_process_group()
