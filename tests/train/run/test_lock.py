"""One run at a time in a directory."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.core.lock_owner import LOCK, Owner
from boxcrew.train.run.lock import locked


def nowhere(text: str) -> None: ...


def hold(folder: Path) -> int:
    """Return the number of a process that holds the lock, and that its parent has to bury."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with locked(folder, nowhere):
            os.write(write, b"held")
            time.sleep(60)
        os._exit(0)
    assert os.read(read, 4) == b"held"
    os.close(read)
    os.close(write)
    return child


def test_the_second_is_refused_and_told_who_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with locked(folder, nowhere):
        owner = f"process {os.getpid()} on {socket.gethostname()}"
        with pytest.raises(UsageError, match=owner) as caught, locked(folder, nowhere):
            pytest.fail("two owners")
        assert str(folder) in caught.value.message
        assert str(folder / LOCK) in caught.value.advice
        assert (folder / LOCK).is_file(), "the refused one does not take it away"
        (folder / "config.yaml").touch()
    assert [p.name for p in folder.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize("error", [None, KeyError, KeyboardInterrupt])
def test_nothing_stays_behind(tmp_path: Path, error: type[BaseException] | None) -> None:
    try:
        with locked(tmp_path / "a" / "b" / "run", nowhere):
            if error is not None:
                raise error
    except (KeyError, KeyboardInterrupt):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_dead_owners_lock_is_taken_over(tmp_path: Path) -> None:
    """Killed, and not even buried by its parent yet."""
    owner = hold(tmp_path)
    try:
        with pytest.raises(UsageError, match=f"process {owner}"), locked(tmp_path, nowhere):
            pytest.fail("two owners")
        os.kill(owner, signal.SIGKILL)
        end = time.monotonic() + 10
        warnings: list[str] = []
        while not warnings and time.monotonic() < end:
            try:
                with locked(tmp_path, warnings.append):
                    assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
            except UsageError:
                time.sleep(0.01)
        assert warnings
        assert f"process {owner}" in warnings[0]
    finally:
        os.kill(owner, signal.SIGKILL)
        os.waitpid(owner, 0)


def test_a_number_that_came_again_is_another_process(tmp_path: Path) -> None:
    """The lock names a process that lives, but was started at another time."""
    other = replace(Owner.me(), born="1")
    (tmp_path / LOCK).write_text(json.dumps(asdict(other)))
    warnings: list[str] = []
    with locked(tmp_path, warnings.append):
        pass
    assert len(warnings) == 1


@pytest.mark.parametrize("content", ["", "{", '{"pid": 1}', "[]"])
def test_a_lock_that_was_never_finished_is_nobodys(tmp_path: Path, content: str) -> None:
    (tmp_path / LOCK).write_text(content)
    with locked(tmp_path, nowhere):
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()


def test_of_many_that_come_at_once_one_gets_it(tmp_path: Path) -> None:
    """The directory has the lock of a process that has ended."""
    (tmp_path / LOCK).write_text(json.dumps(asdict(replace(Owner.me(), born="1"))))
    ready, release = os.pipe(), os.pipe()
    children = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            os.read(release[0], 1)
            try:
                with locked(tmp_path, nowhere):
                    os.write(ready[1], b"y")
                    time.sleep(1)
            except UsageError:
                os.write(ready[1], b"n")
            os._exit(0)
        children.append(child)
    os.write(release[1], b"." * 8)
    answers = b""
    while len(answers) < 8:
        answers += os.read(ready[0], 8)
    for child in children:
        os.waitpid(child, 0)
    assert sorted(answers) == sorted(b"ynnnnnnn")
    assert not (tmp_path / LOCK).exists()


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written to"), locked(tmp_path / "file" / "run", nowhere):
        pytest.fail("in a file")
