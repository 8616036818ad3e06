"""The rendezvous of a run's processes: they connect to one store and learn about each other."""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import psutil
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from boxcrew.core.errors import BoxcrewError, UsageError, first_line
from boxcrew.deploy.processes.environments import LOCALHOST, ProcessEnvironment, process_name
from boxcrew.hardware.machine import Host, Link, Machine
from boxcrew.hardware.probe import probe_machine

RENDEZVOUS = timedelta(minutes=5)  # for all processes to join
LOOK = 0.02  # seconds between two looks at who has joined
_GENERATION, _CONFIRMED = "generation", "confirmed"  # keys of the store
_LOOPBACK = {LOCALHOST, "localhost"}
"""Addresses by which no other host can mean this one; a host's own name may lead to it too."""
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


def connect_store(env: ProcessEnvironment) -> TCPStore:
    """Return the store that all processes of the run share; the chief runs it unless the launcher does."""
    is_host = env.rank == 0 and not env.hosted
    try:
        return TCPStore(
            env.address,
            env.port,
            is_master=is_host,
            timeout=RENDEZVOUS,
            wait_for_workers=False,
            master_listen_fd=_listen_locally(env.port) if is_host and env.address in _LOOPBACK else None,
        )
    except (dist.DistNetworkError, dist.DistStoreError, OSError) as error:
        in_use = "the port may be in use: set another MASTER_PORT"
        raise UsageError(
            f"MASTER_ADDR={env.address} MASTER_PORT={env.port}: cannot connect to the other replicas: "
            f"{first_line(error)}",
            advice=in_use if is_host else "check that the first process is running",
        ) from None


def _listen_locally(port: int) -> int:
    """Return a socket that listens to processes of this host alone; by itself the store listens to all."""
    return socket.create_server((LOCALHOST, port)).detach()


class Member(NamedTuple):
    """The facts about one process that all others need to know."""

    num_servers: int
    host: str
    visible: str  # which of the host's accelerators the process sees, if that was limited
    machine: dict[str, Any]
    process: int
    created: float  # seconds since the epoch: process numbers are used again
    word: str  # random: of the same process of an earlier generation it was another


def join_members(
    store: Store, env: ProcessEnvironment, num_servers: int, check: Callable[[], None] = lambda: None
) -> tuple[Store, list[Member]]:
    """Return a store that only these processes use, and all of them by rank. Raise a `BoxcrewError` that
    names those that have not joined. `check` is called while they are waited for: it may raise an error.

    The chief names the generation with a random word, and confirms who is in it. The store may still hold
    what processes wrote that ended before a restart; and the number of restarts, which each host's launcher
    counts for itself, is not the same on all.
    """
    store = PrefixStore(f"boxcrew/{env.job}", store)
    own = Member(
        num_servers=num_servers,
        host=socket.gethostname(),
        visible=" ".join(os.environ.get(name, "") for name in _VISIBLE),
        machine=probe_machine().tree(),
        process=os.getpid(),
        created=psutil.Process().create_time(),
        word=uuid.uuid4().hex,
    )
    if env.rank == 0:
        store.set(_GENERATION, own.word)
    end = time.monotonic() + RENDEZVOUS.total_seconds()
    generation: str | None = None
    while True:
        if (current := _read(store, _GENERATION)) is not None and current != generation:
            generation, place = current, PrefixStore(current, store)
            place.set(f"member/{env.rank}", json.dumps(own))
        if generation is not None and (members := _joined(place, env, own)):
            return place, members
        if time.monotonic() > end:
            missing = _missing(place, env.world_size) if generation is not None else [0]
            raise _not_joined(missing or [0], env, num_servers)
        check()
        time.sleep(LOOK)


def _joined(store: Store, env: ProcessEnvironment, own: Member) -> list[Member] | None:
    """Return the processes that the chief has confirmed; None if it has not, or if this one is not among
    them: then they are of an earlier generation.
    """
    if env.rank == 0 and not _missing(store, env.world_size):
        joined = [json.loads(store.get(f"member/{rank}")) for rank in range(env.world_size)]
        store.set(_CONFIRMED, json.dumps(joined))
    members = [Member(*member) for member in json.loads(_read(store, _CONFIRMED) or "[]")]
    return members if own.word in {member.word for member in members} else None


def _missing(store: Store, world_size: int) -> list[int]:
    return [rank for rank in range(world_size) if not store.check([f"member/{rank}"])]


def _not_joined(missing: Sequence[int], env: ProcessEnvironment, num_servers: int) -> BoxcrewError:
    names = ", ".join(process_name(rank, env.world_size - num_servers) for rank in missing)
    return BoxcrewError(
        f"{names} did not join the {env.world_size} processes within {RENDEZVOUS.total_seconds():.0f} s",
        advice=f"check its own output, and whether it can reach {env.address}:{env.port}",
    )


def _read(store: Store, key: str) -> str | None:
    """Return a text of the store; None if it is not there. It is not waited for."""
    return store.get(key).decode() if store.check([key]) else None


def hosts_of(replicas: Sequence[Member], servers: Sequence[Member]) -> list[Host]:
    """Return the hosts, the chief's first; replicas that see different accelerators are on different ones."""
    members = (*replicas, *servers)
    hosts = []
    for key in dict.fromkeys((member.host, member.visible) for member in members):
        first = next(member for member in members if (member.host, member.visible) == key)
        ranks = [rank for rank, member in enumerate(replicas) if (member.host, member.visible) == key]
        hosts.append(Host(name=first.host, machine=Machine.of(first.machine), ranks=tuple(ranks)))
    return hosts


def with_link(hosts: Sequence[Host], link: Link) -> list[Host]:
    """Return the hosts with the network between them in their machines' descriptions."""
    return [replace(host, machine=host.machine.model_copy(update={"link": link})) for host in hosts]


def choose_network(address: str) -> None:
    """Let gloo use the network interface that reaches the rendezvous, which all hosts have, or the loopback
    if there is one host. By default it uses that of the host's own name, which others often cannot reach.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # nothing is sent
        own = probe.getsockname()[0]
    for interface, addresses in psutil.net_if_addrs().items():
        if any(candidate.address == own for candidate in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
