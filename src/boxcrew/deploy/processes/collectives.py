"""The replicas of a run as one of them sees them: all_reduce, broadcast, and what to do when one is lost."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]

from boxcrew.core.errors import BoxcrewError
from boxcrew.deploy.processes.environments import ProcessEnvironment, process_name
from boxcrew.deploy.processes.heartbeat import CONNECTION_ERRORS, IS_LOST, RESUME_ADVICE, Heartbeat
from boxcrew.deploy.processes.link import measure_link
from boxcrew.deploy.processes.membership import Generation
from boxcrew.deploy.processes.messages import MessageChannel
from boxcrew.deploy.processes.rendezvous import (
    choose_network,
    connect_store,
    hosts_of,
    join_members,
    with_link,
)
from boxcrew.hardware.machine import Host

TIMEOUT = timedelta(hours=2)
"""For one message. Long, because a chief may evaluate for long: heartbeats show earlier who is gone."""
LAST_WORDS = 120.0  # seconds at most that a chief takes to write its last files
_BROKEN = ("connection", "peer", "timed out", "timeout", "broken pipe", "socket", "abort")
"""Words in torch's errors about broken connections."""
Wait = Callable[[], None]
"""Waits until a collective that has begun is done."""


class ReplicaGroup:
    """A group of one replica, for which collectives have nothing to do. `DistributedGroup` has several."""

    messages: MessageChannel  # to other processes, if there are any
    hosts: Sequence[Host] = ()  # of the replicas; empty for one alone
    local_world_size = 1  # processes on this host
    local_position = (0, 1)  # a replica's index among those on this host, and their number
    rank = 0
    member = 0  # the number of this replica, which it keeps when ranks change
    num_replicas = 1  # replicas; ranks from there on are parameter servers
    is_elastic = False  # whether its replicas may come, go and be lost

    @property
    def is_superseded(self) -> bool:
        """True if other members than those of this group were announced: it should `regroup`."""
        return False

    @property
    def is_chief(self) -> bool:
        return self.rank == 0

    @property
    def is_server(self) -> bool:
        return self.rank >= self.num_replicas

    def processes(self) -> list[dict[str, Any]]:
        """Return name, host and number of all processes of the run, the chief's first, as JSON values."""
        return [{"name": process_name(0, 1), "host": socket.gethostname(), "pid": os.getpid()}]

    def all_reduce(self, tensor: Tensor) -> None:
        """Replace the tensor by the sum of those of all replicas, in place."""

    def all_reduce_async(self, tensor: Tensor) -> Wait:  # noqa: ARG002
        """Begin an `all_reduce`. The tensor must not be touched before the returned function was called."""
        return lambda: None

    def all_to_all_async(
        self, received: Tensor, sent: Tensor, received_sizes: list[int], sent_sizes: list[int]
    ) -> Wait:
        """Begin to send each replica its piece of `sent`, and to receive a piece from each; both are flat."""
        raise NotImplementedError("a replica alone has nobody to send to")

    def all_gather_async(self, whole: Tensor, piece: Tensor) -> Wait:
        """Begin to fill the flat `whole` with the pieces of all replicas, which have one size."""
        raise NotImplementedError("a replica alone has nobody to gather from")

    def all_reduce_servers(self, tensor: Tensor) -> None:
        """Replace the tensor by the sum of those of all parameter servers, in place."""

    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        """Copy the chief's tensors into those of all replicas."""

    def broadcast_json(self, value: Any) -> Any:
        """Return the chief's value, made of JSON values, on every process; servers take part too."""
        return value

    def broadcast_text(self, text: str) -> str:
        """Return the chief's text on every replica. At most 32 bytes; nothing is stored."""
        return text

    def computing(self) -> AbstractContextManager[None]:
        """Mark the inside as a step that the others wait for: one much longer than any before is stuck."""
        return nullcontext()

    def reading(self) -> AbstractContextManager[None]:
        """Mark the inside as reading data: the others wait for it too, but it may take long now and then."""
        return nullcontext()

    def waiting(self) -> AbstractContextManager[None]:
        """Mark the inside as waiting for other processes."""
        return nullcontext()

    def report_failure(self, why: str) -> None:
        """Tell the other processes that this one has failed."""

    def open(self, session: Mapping[str, Any]) -> None:
        """Let replicas join with this knowledge of the run, leave and be lost, if our launcher has started
        it. Only the chief may call it.
        """

    def shut(self) -> None:
        """End what `open` has begun."""

    def leave(self) -> None:
        """Ask for a group without this replica."""

    def regroup(self) -> Generation:
        """Meet the members that were announced last; ranks are then other ones. Raise `LeftError` if this
        replica is not among them.
        """
        raise NotImplementedError("only the replicas that our launcher has started can")

    def ask(self) -> None:
        """Ask the launcher to let this replica join, and wait until it does."""

    def mark_met(self) -> None:
        """Say, after `regroup`, that all members have met. Only the chief may call it."""

    def mark_ready(self) -> None:
        """Say that this replica, which has joined, has the state of the run."""

    def close(self) -> None: ...

    def wait_for_chief(self) -> None:
        """Wait until the chief has ended, if it is on this host: a launcher ends it with the first of all."""


class DistributedGroup(ReplicaGroup):
    """Replicas in processes of their own. The last ranks are parameter servers, as many as the chief says."""

    def __init__(self, env: ProcessEnvironment, *, num_servers: int = 0) -> None:
        self._meet(connect_store(env), env, num_servers)
        # On a connection of its own: the first may be blocked by a broadcast that waits for the chief.
        own_store, num = self._store.clone(), self.num_replicas
        self._heartbeat = Heartbeat(own_store, env.rank, env.world_size, num_replicas=num, on_loss=self._end)
        if len({member.host for member in self._members[:num]}) > 1 and not self.is_server:
            self.hosts = with_link(self.hosts, measure_link(self.all_reduce, num))

    def _meet(
        self,
        store: Store,
        env: ProcessEnvironment,
        num_servers: int,
        *,
        check: Callable[[], None] = lambda: None,
        timeout: timedelta = TIMEOUT,
    ) -> None:
        """Wait for all members and connect to them. `check` is called meanwhile, and may raise an error.
        `timeout` is that of connecting, and of messages.
        """
        self.rank = env.rank
        self._store, self._members = join_members(store, env, num_servers, check)
        num_servers = self._members[0].num_servers
        self.num_replicas = env.world_size - num_servers
        self.hosts = hosts_of(self._members[: self.num_replicas], self._members[self.num_replicas :])
        local = [rank for rank, member in enumerate(self._members) if member.host == socket.gethostname()]
        self.local_world_size = len(local)
        local_replicas = [rank for rank in local if rank < self.num_replicas]
        if self.rank in local_replicas:
            self.local_position = (local_replicas.index(self.rank), len(local_replicas))
        choose_network(env.address)
        dist.init_process_group(
            _backend(), store=self._store, rank=env.rank, world_size=env.world_size, timeout=timeout
        )
        # All processes must create all groups, also those that they are not in.
        self._replicas = _new_group(range(self.num_replicas), num_servers)
        self._servers = _new_group(range(self.num_replicas, env.world_size), num_servers)
        self.messages = MessageChannel(self.waiting)
        self._num_broadcasts = 0

    def processes(self) -> list[dict[str, Any]]:
        names = [process_name(rank, self.num_replicas) for rank in range(len(self._members))]
        members = zip(names, self._members, strict=True)
        return [{"name": name, "host": each.host, "pid": each.process} for name, each in members]

    def all_reduce(self, tensor: Tensor) -> None:
        with self.waiting():
            dist.all_reduce(tensor, group=self._replicas)

    def all_reduce_async(self, tensor: Tensor) -> Wait:
        with self.waiting():
            work = dist.all_reduce(tensor, group=self._replicas, async_op=True)
        return self._wait_for(work)

    def all_to_all_async(
        self, received: Tensor, sent: Tensor, received_sizes: list[int], sent_sizes: list[int]
    ) -> Wait:
        sizes = (received_sizes, sent_sizes)
        with self.waiting():
            work = dist.all_to_all_single(received, sent, *sizes, group=self._replicas, async_op=True)
        return self._wait_for(work)

    def all_gather_async(self, whole: Tensor, piece: Tensor) -> Wait:
        pieces = list(whole.view(self.num_replicas, -1).unbind())
        with self.waiting():
            work = dist.all_gather(pieces, piece, group=self._replicas, async_op=True)
        return self._wait_for(work)

    def _wait_for(self, work: dist.Work | None) -> Wait:
        assert work is not None

        def wait() -> None:
            with self.waiting():
                work.wait()

        return wait

    def all_reduce_servers(self, tensor: Tensor) -> None:
        with self.waiting():
            dist.all_reduce(tensor, group=self._servers)

    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        with self.waiting():
            for tensor in tensors:
                dist.broadcast(tensor, src=0, group=self._replicas)

    def broadcast_json(self, value: Any) -> Any:
        key = f"broadcast/{self._num_broadcasts}"
        self._num_broadcasts += 1
        with self.waiting():
            if self.is_chief:
                self._store.set(key, json.dumps(value))
                return value
            while True:
                # The chief may be busy with data or a trial for longer than the store waits: ask again.
                with suppress(dist.DistStoreError):
                    return json.loads(self._store.get(key))

    def broadcast_text(self, text: str) -> str:
        encoded = torch.tensor(list(text.encode().ljust(32)), dtype=torch.uint8)
        self.broadcast([encoded])
        return bytes(encoded.tolist()).decode().rstrip()

    def computing(self) -> AbstractContextManager[None]:
        return self._heartbeat.computing()

    def reading(self) -> AbstractContextManager[None]:
        return self._heartbeat.reading()

    def _end(self, rank: int, message: str) -> None:
        """End this process at once, whatever its main thread waits for, because of a lost one. That is killed
        if it can be: the launcher waits for it.
        """
        if IS_LOST in message and (process := self._local_process(rank)) is not None:
            with suppress(psutil.Error):  # one that has failed ends by itself
                process.kill()
        print(f"error: {message}\n  {RESUME_ADVICE}", file=sys.stderr, flush=True)
        os._exit(1)

    def report_failure(self, why: str) -> None:
        self._heartbeat.report_failure(why)

    def close(self) -> None:
        self._heartbeat.close()
        with suppress(*CONNECTION_ERRORS):  # the group may have lost a member
            if dist.is_initialized():
                dist.destroy_process_group()

    def wait_for_chief(self) -> None:
        if (process := self._local_process(0)) is not None:
            with suppress(psutil.Error):
                process.wait(LAST_WORDS)

    def _local_process(self, rank: int) -> psutil.Process | None:
        """Return the process of a rank; None if it has ended, or is on another host."""
        member = self._members[rank]
        with suppress(psutil.Error):
            process = psutil.Process(member.process)
            if member.host == socket.gethostname() and process.create_time() == member.created:
                return process
        return None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark the inside as waiting for others. Errors name the process that has caused them."""
        with self._heartbeat.waiting():
            try:
                yield
            except CONNECTION_ERRORS as error:
                if not any(word in str(error).lower() for word in _BROKEN):
                    raise  # our own mistake, not the connection's
                raise self._broken() from error

    def _broken(self) -> BoxcrewError:
        """Return what has happened when a connection is broken."""
        message = self._heartbeat.find_failed() or "another process is gone: the connection to it is broken"
        return BoxcrewError(message, advice=RESUME_ADVICE)


def _new_group(ranks: range, num_servers: int) -> dist.ProcessGroup | None:
    """Return a process group of these ranks; without servers None, which means all ranks to torch."""
    if not num_servers:
        return None
    group = dist.new_group(list(ranks))
    return group if isinstance(group, dist.ProcessGroup) else None


def _backend() -> str:
    """Return torch's backends: an accelerator's own for its tensors, gloo for all others."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    backends = dist.Backend.default_device_backend_map
    if accelerator is None or backends.get(accelerator.type, "gloo") == "gloo":
        return "gloo"
    return f"cpu:gloo,{accelerator.type}:{backends[accelerator.type]}"
