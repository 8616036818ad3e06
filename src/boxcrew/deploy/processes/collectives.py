"""The replicas of a run, seen from one of them: what is added up over all, and what the chief tells."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, NamedTuple

import psutil
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from boxcrew.core.errors import BoxcrewError, UsageError
from boxcrew.deploy.processes.environments import ProcessEnvironment, process_name
from boxcrew.deploy.processes.heartbeat import LAST_WORDS, LOST, MISSED, Heartbeat, end_process
from boxcrew.deploy.processes.messages import MessageChannel
from boxcrew.hardware.machine import Host, Machine
from boxcrew.hardware.probe import probe_machine

TIMEOUT = timedelta(hours=2)
"""For one message. Long, because a chief may evaluate for long: who is gone is noticed by the pulse."""
MEETING = timedelta(minutes=5)  # for all replicas to be there
_BROKEN = ("connection", "peer", "timed out", "timeout", "broken pipe", "socket", "abort")
"""Words in torch's errors of a way that is broken."""
_WORD = 32  # bytes that a word may have
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


class ReplicaGroup:
    """One replica alone: everything is said and added up already."""

    hosts: Sequence[Host] = ()  # where the replicas are, if somebody asked
    local_world_size = 1  # processes on this host
    local_position = (0, 1)  # of a replica: its number among those on this host, and how many they are
    rank = 0
    size = 1  # replicas; ranks from there on are parameter servers

    @property
    def is_chief(self) -> bool:
        return self.rank == 0

    @property
    def is_server(self) -> bool:
        return self.rank >= self.size

    @property
    def messages(self) -> MessageChannel:
        raise AssertionError("one replica alone has nobody to write to")

    def all_reduce(self, tensor: Tensor) -> None:
        """Makes the tensor the sum of those of all replicas."""

    def all_reduce_async(self, tensor: Tensor) -> Pending:  # noqa: ARG002
        """The same while the caller goes on: not to be touched until waited for."""
        return Pending()

    def all_reduce_servers(self, tensor: Tensor) -> None:
        """The same among parameter servers."""

    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        """Makes the tensors what the chief's are, on all replicas."""

    def broadcast_json(self, value: Any) -> Any:
        """The chief's value, on all, servers too. JSON values."""
        return value

    def broadcast_text(self, word: str) -> str:
        """The chief's word, on all: a short one, of which nothing is kept."""
        return word

    def computing(self) -> AbstractContextManager[None]:
        """Inside is what the others wait for: one that takes much longer than ever is stuck."""
        return nullcontext()

    def reading(self) -> AbstractContextManager[None]:
        """Inside is what the others wait for too, but which may take long now and then."""
        return nullcontext()

    def waiting(self) -> AbstractContextManager[None]:
        """Inside, this one waits for others."""
        return nullcontext()

    def report_failure(self, why: str) -> None:
        """Leaves word for the others, who will miss this replica."""

    def close(self) -> None: ...


class Pending:
    """Something under way; nothing, where one replica is alone."""

    def wait(self) -> None: ...


class DistributedGroup(ReplicaGroup):
    """Replicas in processes of their own; the last `num_servers` of them, by the chief's word, are parameter
    servers.
    """

    def __init__(self, env: ProcessEnvironment, *, num_servers: int = 0) -> None:
        self.rank = env.rank
        place = _meeting_place(env)
        self._store = PrefixStore(f"boxcrew/{env.attempt}", place)
        self._present = _call_the_roll(self._store, env, num_servers)
        num_servers = self._present[0].num_servers
        self.size = env.size - num_servers
        self.hosts = _hosts(self._present[: self.size], self._present[self.size :])
        here = [rank for rank, one in enumerate(self._present) if one.host == socket.gethostname()]
        self.local_world_size = len(here)
        beside = [rank for rank in here if rank < self.size]
        if self.rank in beside:
            self.local_position = (beside.index(self.rank), len(beside))
        if len(here) < env.size:
            _choose_network(env.address)
        dist.init_process_group(
            _backend(), store=self._store, rank=env.rank, world_size=env.size, timeout=TIMEOUT
        )
        # All processes must make all groups, also those that they are not in.
        self._replicas = _part_of_all(range(self.size), num_servers)
        self._servers = _part_of_all(range(self.size, env.size), num_servers)
        self._mail = MessageChannel(self.waiting)
        self._told = 0
        # With a connection of its own: the other may be waiting for what the chief has to tell.
        board = PrefixStore(f"boxcrew/{env.attempt}", place.clone())
        self._pulse = Heartbeat(
            board, rank=self.rank, size=env.size, on_loss=self._end, num_replicas=self.size
        )

    @property
    def messages(self) -> MessageChannel:
        return self._mail

    def all_reduce(self, tensor: Tensor) -> None:
        with self.waiting():
            dist.all_reduce(tensor, group=self._replicas)

    def all_reduce_async(self, tensor: Tensor) -> Pending:
        work = dist.all_reduce(tensor, group=self._replicas, async_op=True)
        assert work is not None
        return _Message(work, self.waiting)

    def all_reduce_servers(self, tensor: Tensor) -> None:
        with self.waiting():
            dist.all_reduce(tensor, group=self._servers)

    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        with self.waiting():
            for tensor in tensors:
                dist.broadcast(tensor, src=0, group=self._replicas)

    def broadcast_json(self, value: Any) -> Any:
        key = f"told/{self._told}"
        self._told += 1
        with self.waiting():
            if self.is_chief:
                self._store.set(key, json.dumps(value))
                return value
            while True:
                # The chief may be busy for long, with data or a trial: then one has to ask again.
                with suppress(dist.DistStoreError):
                    return json.loads(self._store.get(key))

    def broadcast_text(self, word: str) -> str:
        written = torch.tensor(list(word.encode().ljust(_WORD)), dtype=torch.uint8)
        self.broadcast([written])
        return bytes(written.tolist()).decode().rstrip()

    def computing(self) -> AbstractContextManager[None]:
        return self._pulse.computing()

    def reading(self) -> AbstractContextManager[None]:
        return self._pulse.reading()

    def _end(self, lost: int, what: str) -> None:
        """Without the lost one, who may be stopped or stuck, and would keep who started us waiting."""
        other = self._present[lost]
        with suppress(psutil.Error):
            process = psutil.Process(other.process)
            is_it = other.host == socket.gethostname() and process.create_time() == other.created
            if is_it and MISSED in what:  # who has failed ends by itself
                process.kill()
        end_process(what)

    def report_failure(self, why: str) -> None:
        self._pulse.report_failure(why)

    def close(self) -> None:
        self._pulse.close()
        with suppress(*LOST):  # of a group that has lost a member
            dist.destroy_process_group()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For the others. Where one of them is gone torch's errors speak of sockets; this one says who."""
        with self._pulse.waiting():
            try:
                yield
            except LOST as error:
                if not any(word in str(error).lower() for word in _BROKEN):
                    raise  # a fault of ours, not of the way between
                raise BoxcrewError(
                    self._who_failed() or "another process is gone: the connection to it is broken",
                    advice="boxcrew resume goes on from the last checkpoint",
                ) from error

    def _who_failed(self) -> str | None:
        end = time.monotonic() + LAST_WORDS
        while time.monotonic() < end:
            said = self._pulse.failed()
            if said is not None:
                time.sleep(max(0.0, end - time.monotonic()))  # who started us is to see that one end first
                return said
            time.sleep(0.05)
        return None


class _Message(Pending):
    def __init__(self, work: dist.Work, waiting: Any) -> None:
        self._work = work
        self._waiting = waiting

    def wait(self) -> None:
        with self._waiting():
            self._work.wait()


def _part_of_all(ranks: range, num_servers: int) -> dist.ProcessGroup | None:
    """None, for torch, is all of them."""
    if not num_servers:
        return None
    made = dist.new_group(list(ranks))
    return made if isinstance(made, dist.ProcessGroup) else None


def _meeting_place(env: ProcessEnvironment) -> TCPStore:
    keeps = env.rank == 0 and not env.hosted
    try:
        return TCPStore(env.address, env.port, is_master=keeps, timeout=MEETING, wait_for_workers=False)
    except (dist.DistNetworkError, dist.DistStoreError) as error:
        why = "the port may be taken: give another MASTER_PORT" if keeps else "is the first process there?"
        raise UsageError(
            f"MASTER_ADDR={env.address} MASTER_PORT={env.port}: replicas cannot meet there: "
            f"{str(error).splitlines()[0]}",
            advice=why,
        ) from None


class _Present(NamedTuple):
    """What a process tells of itself when all meet."""

    num_servers: int
    host: str
    visible: str  # of the host's accelerators, where each process is given some of them
    machine: dict[str, Any]
    process: int
    created: float  # seconds since the epoch: numbers of processes come again


def _call_the_roll(store: PrefixStore, env: ProcessEnvironment, num_servers: int) -> list[_Present]:
    """All processes, by rank; `BoxcrewError` that names who has not come."""
    own = _Present(
        num_servers=num_servers,
        host=socket.gethostname(),
        visible=" ".join(os.environ.get(name, "") for name in _VISIBLE),
        machine=probe_machine().tree(),
        process=os.getpid(),
        created=psutil.Process().create_time(),
    )
    store.set(f"here/{env.rank}", json.dumps(own))
    end = time.monotonic() + MEETING.total_seconds()
    missing = list(range(env.size))
    while missing := [rank for rank in missing if not store.check([f"here/{rank}"])]:
        if time.monotonic() > end:
            names = ", ".join(process_name(rank, env.size - num_servers) for rank in missing)
            raise BoxcrewError(
                f"of {env.size} processes, {names} has not come within {MEETING.total_seconds():.0f} s",
                advice=f"see what its own output says, and whether it can reach {env.address}:{env.port}",
            )
        time.sleep(0.05)
    return [_Present(*json.loads(store.get(f"here/{rank}"))) for rank in range(env.size)]


def _hosts(replicas: Sequence[_Present], servers: Sequence[_Present]) -> list[Host]:
    """The chief's first. Replicas of one host that see different accelerators are as if on several."""
    kinds = dict.fromkeys((one.host, one.visible) for one in (*replicas, *servers))
    found = []
    for host, visible in kinds:
        ranks = [rank for rank, one in enumerate(replicas) if (one.host, one.visible) == (host, visible)]
        seen = next(one for one in (*replicas, *servers) if (one.host, one.visible) == (host, visible))
        found.append(Host(name=host, machine=Machine.of(seen.machine), ranks=tuple(ranks)))
    return found


def _backend() -> str:
    """Messages between accelerators go their own way, all others over gloo."""
    found = torch.accelerator.current_accelerator(check_available=True)
    known = dist.Backend.default_device_backend_map
    if found is None or known.get(found.type, "gloo") == "gloo":
        return "gloo"
    return f"cpu:gloo,{found.type}:{known[found.type]}"


def _choose_network(address: str) -> None:
    """Gloo speaks over the network that the host's own name is of, which is often one that no other host can
    reach. The way to the meeting place is one that all have.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # nothing is sent
        own = probe.getsockname()[0]
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address == own for one in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
