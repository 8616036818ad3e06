"""The network between hosts is measured before the plan is made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest
from torch import Tensor

from boxcrew.deploy.processes.link import measure_link
from tests.helpers.forked import Forked, Job
from tests.helpers.processes import free_port

MEGABIT = 1e6 / 8


class Network:
    """A described network: messages take no time but that which they would take in it."""

    def __init__(self, rate: float, latency: float, num_replicas: int) -> None:
        self.rate, self.latency, self.num_replicas = rate, latency, num_replicas
        self.seconds = 0.0

    def all_reduce(self, tensor: Tensor) -> None:
        share = 2 * (self.num_replicas - 1) / self.num_replicas
        self.seconds += self.latency + share * tensor.nbytes / self.rate
        tensor *= self.num_replicas


@pytest.mark.parametrize("megabits", [20, 100, 1000, 10_000])
@pytest.mark.parametrize("num_replicas", [2, 16])
def test_a_described_network_is_measured(
    monkeypatch: pytest.MonkeyPatch, megabits: int, num_replicas: int
) -> None:
    network = Network(megabits * MEGABIT, 0.0005, num_replicas)
    monkeypatch.setattr("time.perf_counter", lambda: network.seconds)
    measured = measure_link(network.all_reduce, num_replicas)
    assert measured.bytes_per_second == pytest.approx(network.rate, rel=0.01)
    assert measured.seconds == pytest.approx(0.0005, rel=0.01)
    assert network.seconds < 1


REPLICA = """
import ctypes, json, os, socket
from boxcrew.deploy.processes.collectives import DistributedGroup
from boxcrew.deploy.processes.environments import read_environment

socket.gethostname = lambda: "host" + os.environ["RANK"]
namespace = os.open("/run/netns/" + given["namespaces"][int(os.environ["RANK"])], os.O_RDONLY)
assert ctypes.CDLL(None).setns(namespace, 0x40000000) == 0  # CLONE_NEWNET
group = DistributedGroup(read_environment(os.environ))
print(json.dumps([host.machine.link.tree() for host in group.hosts]))
group.close()
"""
SHAPED = "tc qdisc add dev eth0 root tbf rate 20mbit burst 16kb latency 400ms"


def _run(*commands: str) -> bool:
    done = [subprocess.run(command.split(), capture_output=True, check=False) for command in commands]
    return all(each.returncode == 0 for each in done)


@pytest.fixture
def namespaces() -> Iterator[list[str]]:
    """Two network namespaces, as two hosts with 20 Mbit/s between them."""
    if not all(map(shutil.which, ("ip", "tc"))):
        pytest.skip("needs ip and tc")
    names = [f"boxcrew{os.getpid()}{side}" for side in "ab"]
    try:
        made = _run(
            *(f"ip netns add {name}" for name in names),
            f"ip -n {names[0]} link add eth0 type veth peer name eth0 netns {names[1]}",
        )
        for number, name in enumerate(names, 1):
            made = made and _run(
                f"ip -n {name} address add 10.86.0.{number}/24 dev eth0",
                f"ip -n {name} link set eth0 up",
                f"ip -n {name} link set lo up",
                f"ip netns exec {name} {SHAPED}",
            )
        if not made:
            pytest.skip("network namespaces cannot be made here")
        yield names
    finally:
        _run(*(f"ip netns del {name}" for name in names))


def test_a_real_network_is_measured(namespaces: list[str]) -> None:
    """Two hosts -> the description of each has the link, at most as fast as it is."""
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "10.86.0.1", "MASTER_PORT": str(free_port())}
    job = Job(code=REPLICA, given={"namespaces": namespaces})
    hosts = [Forked(replace(job, environment={**group, "RANK": str(rank)})) for rank in range(2)]
    outputs = [host.communicate(timeout=60) for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0], outputs
    links = [each for out, _ in outputs for each in json.loads(out)]
    assert len(links) == 4
    for measured in links:
        assert 0.2 * 20 * MEGABIT < measured["bytes_per_second"] < 1.25 * 20 * MEGABIT
