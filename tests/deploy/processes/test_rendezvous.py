"""The hosts of a run, from what its processes know of themselves."""

from __future__ import annotations

from boxcrew.deploy.processes.rendezvous import Member, hosts_of
from boxcrew.hardware.probe import probe_machine


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
