"""Processes find each other, also after restarts, and the hosts of a run are known from what they say."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from boxcrew.core.errors import BoxcrewError
from boxcrew.deploy.processes import rendezvous
from boxcrew.deploy.processes.collectives import DistributedGroup
from boxcrew.deploy.processes.environments import read_environment
from boxcrew.deploy.processes.rendezvous import Member, connect_store, hosts_of, join_members
from boxcrew.hardware.probe import probe_machine
from boxcrew.plan.plan import Clone, Replica
from tests.helpers.plans import plan_of
from tests.helpers.processes import in_all_processes


def member(host: str, visible: str = "") -> Member:
    return Member(
        num_servers=0,
        host=host,
        visible=visible,
        machine=probe_machine().tree(),
        process=1,
        created=0.0,
        word="",
    )


def test_replicas_are_found_on_their_hosts_and_the_chiefs_is_first() -> None:
    hosts = hosts_of([member("b"), member("a"), member("b")], [member("c")])
    assert [(host.name, host.ranks) for host in hosts] == [("b", (0, 2)), ("a", (1,)), ("c", ())]


def test_replicas_that_were_each_given_an_accelerator_are_planned_each_by_itself() -> None:
    """A job scheduler shows each replica one accelerator, under the same name."""
    hosts = hosts_of([member("a", "0"), member("a", "1")], [])
    assert [host.ranks for host in hosts] == [(0,), (1,)]


class Agents:
    """The store that torchrun's agents keep over restarts, and processes that they start."""

    def __init__(self) -> None:
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._pool = ThreadPoolExecutor(4)

    def start(self, rank: int, *, restarts: int, world_size: int = 2) -> Future[list[Member]]:
        """Let a process join whose agent has counted so many restarts."""
        env = read_environment(
            {
                "RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(self._store.port),
                "TORCHELASTIC_RUN_ID": "job",
                "TORCHELASTIC_RESTART_COUNT": str(restarts),
                "TORCHELASTIC_USE_AGENT_STORE": "True",
            }
        )
        assert env is not None
        return self._pool.submit(lambda: join_members(connect_store(env), env, 0)[1])


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> Agents:
    monkeypatch.setattr(rendezvous, "RENDEZVOUS", timedelta(seconds=2))
    return Agents()


def words(*joined: Future[list[Member]]) -> set[str]:
    """Return the words of the processes that have met, which all of them must know."""
    seen = {tuple(member.word for member in each.result()) for each in joined}
    assert len(seen) == 1
    return set(seen.pop())


def test_agents_that_count_restarts_differently_meet(agents: Agents) -> None:
    """One saw its worker fail, the other only that the members changed."""
    first = words(agents.start(0, restarts=0), agents.start(1, restarts=0))
    second = words(agents.start(0, restarts=1), agents.start(1, restarts=0))
    assert (len(first), len(second), first & second) == (2, 2, set())


def test_a_process_that_comes_before_the_chief_waits_for_the_new_one(agents: Agents) -> None:
    """The store still has all that the last generation wrote, also one of another size."""
    first = words(*(agents.start(rank, restarts=0, world_size=3) for rank in range(3)))
    early = agents.start(1, restarts=1)
    time.sleep(0.3)
    assert not early.done()
    second = words(agents.start(0, restarts=0), early)
    assert (len(second), first & second) == (2, set())


def test_those_that_do_not_come_are_named(agents: Agents) -> None:
    words(agents.start(0, restarts=0), agents.start(1, restarts=0))
    with pytest.raises(BoxcrewError, match=r"^replica 0 did not join the 2 processes within 2 s"):
        agents.start(1, restarts=1).result()
    with pytest.raises(BoxcrewError, match=r"^replica 1 did not join the 2 processes within 2 s"):
        agents.start(0, restarts=1).result()


def _listening(group: DistributedGroup, file: Path) -> None:
    """Save the addresses that this process listens on, when it has messages and groups."""
    group.broadcast_json("all are here")
    connections = psutil.Process().net_connections(kind="inet")
    addresses = [each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN]
    torch.save(addresses, file)
    (group.all_reduce_servers if group.is_server else group.all_reduce)(torch.ones(1))


def test_local_replicas_and_servers_listen_on_loopback_alone(tmp_path: Path) -> None:
    replica = Replica(clones=(Clone(device="cpu", share=2),))
    plan = plan_of(4, strategy="parameter_server", replicas=(replica, replica), servers=1)
    addresses = in_all_processes(plan, _listening, tmp_path)
    assert all(addresses), "the store of the chief, and gloo's of each"
    assert {address for listed in addresses for address in listed} == {"127.0.0.1"}
