"""The command `boxcrew join`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from torch.distributed import DistNetworkError, DistStoreError, TCPStore  # type: ignore[attr-defined]

from boxcrew.cli.output import Output, parse_settings
from boxcrew.cli.taking_part import taking_part
from boxcrew.core.config import Tree
from boxcrew.core.errors import PREEMPTED, UsageError
from boxcrew.core.parent_process import LAUNCHER, die_with
from boxcrew.deploy.processes.elastic_group import ElasticGroup
from boxcrew.deploy.processes.environments import ProcessEnvironment, host_and_port
from boxcrew.deploy.processes.membership import (
    Membership,
    own_number,
    read_run,
)
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.replicas import join_training, versions
from boxcrew.train.run.stored_settings import flat

_FREE = {"data.path", "loader.workers"}  # settings that a joining replica may have of its own
_CONNECTING = timedelta(seconds=30)
_OPENING = 300.0  # seconds until the first step of the run that it waits for at most


def join_command(words: list[str], out: Output) -> None:
    if LAUNCHER in os.environ:
        die_with(int(os.environ[LAUNCHER]))
    names, tree = parse_settings(words, positional=1)
    if not names:
        raise UsageError(
            "HOST:PORT is missing", advice="boxcrew join 192.168.0.7:29500, as 'boxcrew train' says"
        )
    host, port = host_and_port(names[0])
    store = _connect(host, port)
    job = read_run(store)
    membership = Membership(store, job)
    session = _session(membership, names[0])
    config = _own_settings(session, tree)
    number = own_number()
    number = membership.new_number() if number is None else number
    env = ProcessEnvironment(rank=0, world_size=1, address=host, port=port, hosted=True, job=job)
    group = ElasticGroup(env, number, store)
    out.info(f"replica {number}: preparing to join the run at {names[0]}")
    with taking_part(group):
        preempted = join_training({**session, "config": config.tree(), "resumes": False}, group, Screen())
    if preempted:
        sys.exit(PREEMPTED)
    out.info("the run has ended")


def _connect(host: str, port: int) -> TCPStore:
    try:
        return TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_CONNECTING)
    except (DistNetworkError, DistStoreError, OSError):
        raise UsageError(
            f"{host}:{port}: no run can be reached there",
            advice="give the address that 'boxcrew train' has printed, and check that the run has not ended",
        ) from None


def _session(membership: Membership, address: str) -> dict[str, Any]:
    """Wait until replicas may join, and return what they must know."""
    end = time.monotonic() + _OPENING
    while time.monotonic() < end:
        if (session := membership.session()) is not None:
            if session["version"] != versions():
                raise UsageError(
                    f"{address}: the run is trained by {session['version']}; here is {versions()}",
                    advice="install the same versions",
                )
            return session
        time.sleep(0.1)
    raise UsageError(f"{address}: nobody can join this run", advice="it needs deploy.strategy=ddp on CPUs")


def _own_settings(session: Mapping[str, Any], tree: Tree) -> RunConfig:
    """Return the settings of the run, with those that this replica may have of its own."""
    began = RunConfig.of(session["config"])
    config = began.changed(tree)
    before, now = flat(began.tree()), flat(config.tree())
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) != now.get(key) and key not in _FREE:
            raise UsageError(
                f"{key}={now.get(key)}: the run has {before.get(key)}",
                advice=f"leave it out; a replica that joins has at most its own {', '.join(sorted(_FREE))}",
            )
    return config
