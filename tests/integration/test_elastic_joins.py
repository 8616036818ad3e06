"""Replicas join a run and leave it: it learns what one process learns, bit for bit.

The whole command, with real kills. Each test says in its name what happens.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

from tests.helpers.elastic import (
    PATIENCE,
    Start,
    num_starts,
    replicas_of,
    require_whole,
    step_of,
    wait_for_step,
    wait_until,
)
from tests.helpers.processes import free_port


def test_kill_of_the_one_that_joins(start: Start, alone: Path, tmp_path: Path) -> None:
    """In the place of a lost one another was started, and is killed when it is about to meet the others
    -> the others go on, and a third one joins.
    """
    program = """
import os, signal
from boxcrew.deploy.processes.elastic_group import ElasticGroup
meet = ElasticGroup._meet_members
def die(group, generation):
    if group.member == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    meet(group, generation)
ElasticGroup._meet_members = die
"""
    process, run = start(first=program, pause=0.5), tmp_path / "run"
    wait_for_step(run, 3, process)
    replicas_of(process)[1].kill()
    err = require_whole(process, run, alone)
    assert "replica 3 was killed by SIGKILL: 2 replicas continue, and another starts in its place" in err
    assert "replica 4 joins; 3 replicas continue" in (run / "train.log").read_text()
    assert num_starts(run) == 1


def test_join_and_flap(start: Start, alone: Path, tmp_path: Path) -> None:
    """From one replica to three and back, started by hand, one of them killed."""
    address = f"127.0.0.1:{free_port()}"
    words = ("deploy.replicas=1:4", f"deploy.listen={address}")
    process, run = start(*words, pause=1.0), tmp_path / "run"
    wait_for_step(run, 3, process)

    def log() -> str:
        return (run / "train.log").read_text()

    joined = [start(address, command="join") for _ in range(2)]
    wait_until(
        lambda: {"replica 1 joins", "replica 2 joins"} <= set(re.findall(r"replica \d joins", log())), process
    )
    wait_for_step(run, step_of(run) + 2, process)
    joined[0].kill()
    wait_until(lambda: "is lost: no heartbeat for" in log(), process)
    os.kill(joined[1].pid, signal.SIGTERM)
    assert joined[1].wait(timeout=PATIENCE) == 75
    require_whole(process, run, alone)
    assert num_starts(run) == 1


def test_join_is_refused(start: Start, tmp_path: Path, photos: Path) -> None:
    """With other settings, other data, or without room -> by name, and the run goes on."""
    address = f"127.0.0.1:{free_port()}"
    words = ("deploy.replicas=1:2", "deploy.logical_clones=2", f"deploy.listen={address}", "steps=10000")
    process, run = start(*words), tmp_path / "run"
    wait_for_step(run, 3, process)
    other = start(address, "seed=3", command="join")
    assert "seed=3: the run has 0" in other.communicate(timeout=PATIENCE)[1]
    shutil.copytree(photos, tmp_path / "less")
    for file in sorted((tmp_path / "less").rglob("train.txt")):
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    less = start(address, f"data={tmp_path / 'less'}", command="join")
    assert "differs from the data of replica 0" in less.communicate(timeout=PATIENCE)[1]
    old = start(address, command="join", first="import boxcrew.train.run.replicas as r\nr.VERSION = '0.0'\n")
    assert "; here is boxcrew 0.0, torch" in old.communicate(timeout=PATIENCE)[1]
    first = start(address, command="join")
    wait_until(lambda: " joins; 2 replicas" in (run / "train.log").read_text(), process)
    second = start(address, command="join")
    assert "no room: 2 replicas of at most 2" in second.communicate(timeout=PATIENCE)[1]
    codes = [refused.returncode for refused in (other, less, old, second)]
    assert codes == [2, 3, 2, 2]
    process.kill()
    assert first.wait(timeout=PATIENCE) != 0
    nowhere = start(command="join")
    assert "HOST:PORT is missing" in nowhere.communicate(timeout=PATIENCE)[1]
    nobody = start(address, command="join")
    assert "no run can be reached there" in nobody.communicate(timeout=PATIENCE)[1]
