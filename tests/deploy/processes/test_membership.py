"""The words of the launcher and of replicas about who belongs to a run."""

from __future__ import annotations

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from boxcrew.core.errors import UsageError
from boxcrew.deploy.processes.environments import host_and_port
from boxcrew.deploy.processes.membership import Generation, Membership, read_run, write_run


def test_what_one_announces_another_reads() -> None:
    store = HashStore()
    launcher, replica = Membership(store, "job.0"), Membership(store, "job.0")
    assert replica.newest() is None
    change = Generation(3, (0, 2, 5), (5,), "replica 5 joins")
    launcher.announce(change)
    assert replica.newest() == change


def test_starts_of_one_launcher_do_not_hear_each_other() -> None:
    store = HashStore()
    Membership(store, "job.0").end("too late")
    assert Membership(store, "job.1").ending is None
    write_run(store, "job.1")
    assert read_run(store) == "job.1"


def test_a_session_is_there_until_it_is_closed() -> None:
    store = HashStore()
    chief, other = Membership(store, "job"), Membership(store, "job")
    assert other.session() is None
    chief.open({"num_clones": 4})
    assert other.session() == {"num_clones": 4}
    chief.close()
    assert other.session() is None


def test_numbers_are_given_once_and_answers_are_for_one() -> None:
    store = HashStore()
    first, second = Membership(store, "job"), Membership(store, "job")
    assert [first.new_number(), second.new_number(), first.new_number()] == [0, 1, 2]
    assert second.num_numbers() == 3
    first.ask(1, {"host": "a"})
    assert (second.asks(1), second.asks(2)) == ({"host": "a"}, None)
    second.refuse(1, "no room")
    assert (first.refusal(1), first.refusal(2)) == ("no room", None)
    first.mark("leaves", 1)
    assert second.is_marked("leaves", 1)
    assert not second.is_marked("leaves", 2)
    assert not second.is_marked("ready", 1)


def test_addresses() -> None:
    assert host_and_port("10.0.0.5:29500") == ("10.0.0.5", 29500)
    for wrong in ("10.0.0.5", ":29500", "host:port", "host:70000"):
        with pytest.raises(UsageError, match=f"deploy.listen={wrong}: not HOST:PORT"):
            host_and_port(wrong, setting="deploy.listen=")
