"""A group whose replicas may come, go and be lost while the others train on (docs/decisions/0034).

When a connection breaks, `waiting` raises `ReplicaLostError` as soon as the launcher has announced who is
left. The training loop then undoes what it has begun and calls `regroup`: the members of the newest
generation meet, and get new ranks.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from boxcrew.core.errors import BoxcrewError, UsageError, first_line
from boxcrew.deploy.processes.collectives import TIMEOUT, DistributedGroup
from boxcrew.deploy.processes.environments import ProcessEnvironment
from boxcrew.deploy.processes.heartbeat import CONNECTION_ERRORS, RESUME_ADVICE, Heartbeat
from boxcrew.deploy.processes.membership import (
    Generation,
    LeftError,
    Membership,
    ReplicaLostError,
)
from boxcrew.deploy.processes.rendezvous import LOOK, connect_store

CONNECTING = timedelta(seconds=20)  # for the connections of a new group: a member may just have died
VERDICT = 60.0  # seconds at most until the launcher says who is left after a connection has broken


class _SupersededError(Exception):
    """Raised in a meeting of a generation that is not the newest any more."""


class ElasticGroup(DistributedGroup):
    """Replicas that our launcher watches over: it announces who is a member."""

    is_elastic = True

    def __init__(self, env: ProcessEnvironment, member: int, store: Store | None = None) -> None:
        """Join the others that were started, or with a `store` be ready to join those who train already."""
        self.member = member
        self._env = env
        self._shared = store or connect_store(env)
        self.membership = Membership(self._shared.clone(), env.job)
        self._has_state = store is None  # of the run; one that joins has none yet
        self._generation = Generation(0, tuple(range(env.world_size)))
        if store is None:
            self._meet(self._shared, env, 0)
        self._heartbeat = Heartbeat(
            beats_of(self._shared.clone(), env.job),
            member,
            size=0,
            num_replicas=env.world_size,
            on_loss=self._end_alone,
            watches=False,
        )

    @property
    def is_superseded(self) -> bool:
        try:
            newest = self.membership.newest()
        except CONNECTION_ERRORS as error:
            raise BoxcrewError(f"the launcher is gone: {first_line(error)}", advice=RESUME_ADVICE) from None
        return newest is not None and newest.number > self._generation.number

    def open(self, session: Mapping[str, Any]) -> None:
        self.membership.open(session)

    def shut(self) -> None:
        with suppress(*CONNECTION_ERRORS):
            self.membership.close()

    def leave(self) -> None:
        """Ask the launcher for a generation without this replica."""
        self.membership.mark("leaves", self.member)

    def ask(self) -> None:
        host = {"host": socket.gethostname(), "process": os.getpid()}
        self.membership.ask(self.member, host)
        with self._heartbeat.waiting():
            self._wait_for_admission()

    def _wait_for_admission(self) -> None:
        """Wait until this replica is a member."""
        while True:
            if (reason := self.membership.refusal(self.member)) is not None:
                raise UsageError(reason, advice="join again when a replica has left")
            if (reason := self.membership.ending) is not None:
                raise BoxcrewError(reason, advice=RESUME_ADVICE)
            newest = self.membership.newest()
            if newest is not None and self.member in newest.members:
                return
            time.sleep(LOOK)

    def mark_met(self) -> None:
        self.membership.mark("met", self._generation.number)

    def mark_ready(self) -> None:
        self._has_state = True
        self.membership.mark("ready", self.member)

    def regroup(self) -> Generation:
        self._disconnect()
        with self._heartbeat.waiting():
            while True:
                generation = self.membership.newest() or self._generation
                if self.member not in generation.members:
                    if self._has_state:
                        raise LeftError("this replica has left the run")
                    self._wait_for_admission()  # another was lost before all had met
                    continue
                try:
                    self._meet_members(generation)
                except (_SupersededError, *CONNECTION_ERRORS, BoxcrewError):
                    self._disconnect()
                    if not self._waits_for_another(generation):
                        raise
                else:
                    self._generation = generation
                    return generation

    def _meet_members(self, generation: Generation) -> None:
        def check() -> None:
            newest = self.membership.newest()
            if newest is not None and newest.number > generation.number:
                raise _SupersededError

        members = generation.members
        env = replace(
            self._env,
            rank=members.index(self.member),
            world_size=len(members),
            job=f"{self._env.job}/{generation.number}",
        )
        self._meet(self._shared, env, 0, check=check, timeout=CONNECTING)
        world = dist.group.WORLD
        assert world is not None
        world._get_backend(torch.device("cpu"))._set_default_timeout(TIMEOUT)

    def _waits_for_another(self, generation: Generation) -> bool:
        """Wait until a generation after this one is announced; return whether one is."""
        end = time.monotonic() + VERDICT
        while time.monotonic() < end:
            newest = self.membership.newest()
            if newest is not None and newest.number > generation.number:
                return True
            if (reason := self.membership.ending) is not None:
                raise BoxcrewError(reason, advice=RESUME_ADVICE)
            time.sleep(LOOK)
        return False

    def _disconnect(self) -> None:
        """Close all connections to other replicas: those that wait for this one notice it."""
        if not dist.is_initialized():
            return
        with suppress(*CONNECTION_ERRORS):
            world = dist.group.WORLD
            assert world is not None
            world._get_backend(torch.device("cpu")).abort()
        with suppress(*CONNECTION_ERRORS):
            dist.destroy_process_group()

    def _broken(self) -> BoxcrewError:
        """Return that another replica is lost, once the launcher has announced who is left; or why the run
        ends.
        """
        end = time.monotonic() + VERDICT
        with suppress(*CONNECTION_ERRORS):
            self.membership.mark("broken", self._generation.number)
        while time.monotonic() < end:
            with suppress(*CONNECTION_ERRORS):
                if (reason := self.membership.ending) is not None:
                    return BoxcrewError(reason, advice=RESUME_ADVICE)
                if self.is_superseded:
                    break
            time.sleep(LOOK)
        return ReplicaLostError("another replica is lost", advice=RESUME_ADVICE)

    def _end_alone(self, _: int, message: str) -> None:
        """End this process at once: the launcher, which runs the store, is gone."""
        reason = message.partition(": ")[2]
        print(f"error: the launcher is gone: {reason}\n  {RESUME_ADVICE}", file=sys.stderr, flush=True)
        os._exit(1)


def beats_of(store: Store, job: str) -> Store:
    """Return the part of a run's store that has the heartbeats of its members."""
    return PrefixStore(f"beats/{job}", store)
