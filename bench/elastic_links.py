"""The plan's seconds of a step on two hosts, against measured ones, at three speeds of the network.

The hosts are network namespaces of this machine, with names and addresses of their own and a limit on the
speed of the wire (`ip netns`, `unshare --uts`, `tc`): Linux, as root. About 5 minutes.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.row import Row, skipped
from bench.small_set import write_small

SPEEDS = (20, 100, 1000)  # Mbit/s
HOSTS = ("host1", "host2")
STEPS = 9
AIM = 0.25
COMMAND = "python -m bench elastic_links"
_WHAT = "seconds of a step on two hosts, as the plan says, against measured"
_PORT = 29517
_NETWORK = "10.77.0"  # of the two namespaces alone


def rows() -> list[Row]:
    missing = [name for name in ("ip", "tc", "unshare") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        reason = f"{', '.join(missing)} missing" if missing else "namespaces need root"
        return [skipped(what=_WHAT, reason=reason, command=COMMAND)]
    with tempfile.TemporaryDirectory() as name, _hosts():
        data = write_small("shelf", Path(name) / "data", num_train=64, num_val=2)
        return [_row(speed, *_train(speed, data, Path(name) / f"at{speed}")) for speed in SPEEDS]


def _row(megabits: int, predicted: float, measured: float) -> Row:
    error = predicted / measured - 1
    return Row(
        what=f"{_WHAT}, {megabits} Mbit/s",
        ours=f"{predicted:.2f} s",
        theirs=f"{measured:.2f} s",
        verdict=f"{error:+.0%} (aim: within {AIM:.0%})",
        command=COMMAND,
        detail=f"`ssdlite`, 160 px, batch 8, {STEPS} steps; two namespaces, each with one replica of one "
        "thread, which share the two cores of one machine",
    )


def _train(megabits: int, data: Path, run: Path) -> tuple[float, float]:
    """Train under torchrun on both hosts, and return the seconds of a step: planned, and measured."""
    for host in HOSTS:
        limit = f"rate {megabits}mbit burst {max(32, megabits)}kb latency 200ms"
        _call(f"ip netns exec {host} tc qdisc replace dev {host} root tbf {limit}")
    words = [f"data={data}", "size=160", "batch=8", f"steps={STEPS}", "trial=true", "init=scratch"]
    words += ["evaluation.every_epochs=1000", "summaries.tensorboard=false", "deploy.threads=1"]
    processes = [_start(host, number, [*words, f"out={run}"]) for number, host in enumerate(HOSTS)]
    codes = [process.wait() for process in processes]
    if any(codes):
        raise RuntimeError(f"the training at {megabits} Mbit/s ended with {codes}")
    plan: dict[str, Any] = json.loads((run / "plan.json").read_text())
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return plan["predicted"]["step"]["likely"], summary["first_steps"]["measured"]["step_seconds"]


def _start(host: str, number: int, words: list[str]) -> subprocess.Popen[bytes]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={number}"]
    torchrun += [f"--master-addr={_NETWORK}.1", f"--master-port={_PORT}", "--nproc-per-node=1"]
    command = shlex.join([*torchrun, "-m", "boxcrew", "train", "ssdlite", *words])
    inside = f"hostname {host} && exec {command}"
    environment = os.environ | {"GLOO_SOCKET_IFNAME": host, "TP_SOCKET_IFNAME": host, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        ["ip", "netns", "exec", host, "unshare", "--uts", "sh", "-c", inside],
        stdout=sys.stderr,
        env=environment,
    )


@contextmanager
def _hosts() -> Iterator[None]:
    """Make two network namespaces with a wire between them, for as long as they are needed."""
    made = []
    try:
        for host in HOSTS:
            _call(f"ip netns add {host}")
            made.append(host)
        _call(f"ip link add {HOSTS[0]} netns {HOSTS[0]} type veth peer name {HOSTS[1]} netns {HOSTS[1]}")
        for number, host in enumerate(HOSTS, start=1):
            _call(f"ip -n {host} addr add {_NETWORK}.{number}/24 dev {host}")
            _call(f"ip -n {host} link set {host} up")
            _call(f"ip -n {host} link set lo up")
        yield
    finally:
        for host in made:
            _call(f"ip netns del {host}")


def _call(command: str) -> None:
    subprocess.run(command.split(), check=True)
