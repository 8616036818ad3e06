"""Who is where, as processes tell when they meet."""

from __future__ import annotations

from boxcrew.deploy.processes.collectives import _hosts, _Present
from boxcrew.hardware.probe import probe_machine


def present(host: str, visible: str = "") -> _Present:
    return _Present(
        num_servers=0, host=host, visible=visible, machine=probe_machine().tree(), process=1, created=0.0
    )


def test_replicas_are_found_on_their_hosts_and_the_chiefs_is_first() -> None:
    found = _hosts([present("b"), present("a"), present("b")], [present("c")])
    assert [(host.name, host.ranks) for host in found] == [("b", (0, 2)), ("a", (1,)), ("c", ())]


def test_replicas_that_were_each_given_an_accelerator_are_planned_each_by_itself() -> None:
    """As a job scheduler does: each sees one, under the same name."""
    found = _hosts([present("a", "0"), present("a", "1")], [])
    assert [host.ranks for host in found] == [(0,), (1,)]
