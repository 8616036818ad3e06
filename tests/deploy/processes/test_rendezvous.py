"""The hosts of a run, from what its processes know of themselves."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

from boxcrew.deploy.processes.collectives import DistributedGroup
from boxcrew.deploy.processes.rendezvous import Member, hosts_of
from boxcrew.hardware.probe import probe_machine
from boxcrew.plan.plan import Clone, Replica
from tests.helpers.plans import plan_of
from tests.helpers.processes import in_all_processes


def member(host: str, visible: str = "") -> Member:
    return Member(
        num_servers=0, host=host, visible=visible, machine=probe_machine().tree(), process=1, created=0.0
    )


def test_replicas_are_found_on_their_hosts_and_the_chiefs_is_first() -> None:
    hosts = hosts_of([member("b"), member("a"), member("b")], [member("c")])
    assert [(host.name, host.ranks) for host in hosts] == [("b", (0, 2)), ("a", (1,)), ("c", ())]


def test_replicas_that_were_each_given_an_accelerator_are_planned_each_by_itself() -> None:
    """A job scheduler shows each replica one accelerator, under the same name."""
    hosts = hosts_of([member("a", "0"), member("a", "1")], [])
    assert [host.ranks for host in hosts] == [(0,), (1,)]


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
