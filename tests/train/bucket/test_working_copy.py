"""Runs in a bucket of a real S3 server: killed, fenced off, taken over, and refused for a while."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from boxcrew.core.errors import BoxcrewError, UsageError
from boxcrew.core.files import append, write_json, write_text
from boxcrew.core.storage.address import Url
from boxcrew.core.storage.store import Store
from boxcrew.train.bucket import lease, uploader
from boxcrew.train.bucket.records import everything, local_run, records
from boxcrew.train.bucket.state import stored_state
from boxcrew.train.bucket.working_copy import RunLocation, run_location
from boxcrew.train.loop.checkpoint import Checkpoint, newest_checkpoint, remove_old, write_checkpoint
from boxcrew.train.output.screen import Screen
from tests.helpers.s3 import S3Server

STEPS = (1, 2, 3, 4)


def checkpoint(step: int) -> Checkpoint:
    return Checkpoint(step=step, tensors={"task/a": torch.full((50,), float(step))}, state={"hooks": {}})


def save(folder: Path, step: int) -> None:
    """Write what a run writes at a step, and keep two checkpoints."""
    folder.mkdir(parents=True, exist_ok=True)
    append(folder / "metrics.jsonl", f'{{"step": {step}}}\n')
    write_json(folder / "status.json", {"state": "running", "step": step})
    write_checkpoint(folder / "checkpoints", checkpoint(step))
    remove_old(folder / "checkpoints", last=step, keep=2)


def folder_of(place: RunLocation) -> Path:
    assert place.folder is not None
    return place.folder


class ScreenList(Screen):
    """A screen that keeps its lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def info(self, text: str, *, style: str | None = None) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Uploads are asked for here, and leases end in parts of a second."""
    monkeypatch.setattr(uploader, "PERIOD", 100.0)
    monkeypatch.setattr(lease, "RENEWAL", 0.1)
    monkeypatch.setattr(lease, "EXPIRY", 1.0)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def other_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """`(name)`: goes to another host, with an empty disk."""

    def go(name: str) -> None:
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        monkeypatch.setattr(socket, "gethostname", lambda: name)

    return go


@contextmanager
def killed_at(s3: S3Server, when: Callable[[str, str], bool], *, after: bool) -> Iterator[list[int]]:
    """Kill the process whose number is put in the list when the server gets a request, or `after` it."""
    children: list[int] = []

    def kill(method: str, path: str) -> str | None:
        if children and when(method, path):
            os.kill(children[0], signal.SIGKILL)
        return None

    s3.fault, s3.after = (None, kill) if after else (kill, None)
    try:
        yield children
    finally:
        s3.fault = s3.after = None


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("point", [0, 2, 4, 5])
def test_a_kill_at_any_point_of_a_save_leaves_a_whole_checkpoint(
    s3: S3Server, bucket: Url, point: int, after: bool
) -> None:
    """s3_killed_in_a_save: at the requests of the third save, of which the first two are whole."""
    url, seen = bucket / "run", list[str]()
    begun = threading.Event()

    def when(method: str, path: str) -> bool:
        if not begun.is_set() or method not in {"PUT", "DELETE"} or "/lease/" in path:
            return False
        seen.append(path)
        return len(seen) == point + 1

    ready, tell = os.pipe()
    go, asked = os.pipe()
    with killed_at(s3, when, after=after) as children:
        child = os.fork()
        if child == 0:
            with run_location(url, Screen(), is_new=True) as place:
                for step in STEPS:
                    save(folder_of(place), step)
                    if step == 3:
                        os.write(tell, b"r")
                        os.read(go, 1)
                    place.save()
            os._exit(0)
        assert os.read(ready, 1) == b"r"
        children.append(child)
        begun.set()
        os.write(asked, b"g")
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
    other = Path("other")
    other.mkdir()
    os.chdir(other)
    with run_location(url, Screen(), is_new=False) as place:
        newest, problems = newest_checkpoint(folder_of(place) / "checkpoints")
        assert problems == []
        assert newest is not None
        assert newest.step in {2, 3}
        assert torch.equal(newest.tensors["task/a"], checkpoint(newest.step).tensors["task/a"])
        save(folder_of(place), newest.step + 1)
    stored, _ = newest_checkpoint(local_run(url, everything) / "checkpoints")
    assert stored is not None
    assert stored.step == newest.step + 1


def test_what_is_stored_is_the_run(bucket: Url, other_host: Callable[[str], None]) -> None:
    url = bucket / "runs" / "a"
    with run_location(url, Screen(), is_new=True) as place:
        for step in STEPS:
            save(folder_of(place), step)
            place.save()
        parts = [name for name in Store(url).objects() if name.startswith("parts/metrics.jsonl/")]
        assert len(parts) == len(STEPS)
        whole = local_run(url, everything)
        assert (whole / "metrics.jsonl").read_text() == (folder_of(place) / "metrics.jsonl").read_text()
        write_text(folder_of(place) / "metrics.jsonl", '{"step": 1}\n')  # as a run that goes back does
        write_checkpoint(folder_of(place) / "checkpoints", checkpoint(5))
        place.save()
        assert (local_run(url, everything) / "metrics.jsonl").read_text() == '{"step": 1}\n'
    names = [name for name in Store(url).objects() if not name.startswith("lease/")]
    kept = [f"checkpoints/0000000{step}/{file}" for step in (3, 4, 5) for file in ("COMMIT", "state.json")]
    assert sorted(names) == sorted(
        [
            *kept,
            *(f"{name.rpartition('/')[0]}/tensors.safetensors" for name in kept[::2]),
            "metrics.jsonl",
            "status.json",
        ]
    )
    assert not list((local_run(url, records) / "checkpoints").rglob("*.safetensors"))
    other_host("elsewhere")
    with run_location(url, Screen(), is_new=True) as place:
        newest, _ = newest_checkpoint(folder_of(place) / "checkpoints")
        assert newest is not None
        assert newest.step == 5
        assert (folder_of(place) / "metrics.jsonl").read_text() == '{"step": 1}\n'


def test_only_one_of_two_has_a_run(bucket: Url, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_location(bucket / "a", Screen(), is_new=True) as place:
        save(folder_of(place), 1)
        with (
            pytest.raises(UsageError, match="in use by process"),
            run_location(bucket / "a", Screen(), is_new=True),
        ):
            pass
        monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")  # which sees the renewals
        with (
            pytest.raises(UsageError, match="in use by process"),
            run_location(bucket / "a", Screen(), is_new=True),
        ):
            pass
        assert stored_state(bucket / "a", lambda _: None).state == "preparing"
    assert stored_state(bucket / "a", lambda _: None).checkpoint == 1


def test_a_host_that_wakes_up_late_writes_nothing(bucket: Url, other_host: Callable[[str], None]) -> None:
    """lease_stolen: a stopped process loses its run to another host, and finds that out before it writes."""
    url = bucket / "a"
    ready, tell = os.pipe()
    result, answer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with run_location(url, Screen(), is_new=True) as place:
                save(folder_of(place), 1)
                place.save()
                os.write(tell, b"r")
                os.kill(os.getpid(), signal.SIGSTOP)
                save(folder_of(place), 2)
                place.save()
        except BoxcrewError as error:
            os.write(answer, error.message.encode())
        os._exit(0)
    assert os.read(ready, 1) == b"r"
    os.waitpid(child, os.WUNTRACED)
    other_host("elsewhere")
    screen = ScreenList()
    with run_location(url, screen, is_new=False) as place:
        assert [line for line in screen.lines if "no sign of life" in line]
        before = Store(url).objects()
        os.kill(child, signal.SIGCONT)
        assert os.waitpid(child, 0)[1] == 0
        assert b"taken over by another process" in os.read(result, 1000)
        assert {n: i for n, i in Store(url).objects().items() if "lease" not in n} == {
            name: info for name, info in before.items() if "lease" not in name
        }
        save(folder_of(place), 2)
    assert stored_state(url, lambda _: None).takeovers == 1


def test_a_server_that_is_gone_costs_nothing_but_the_copy(s3: S3Server, bucket: Url) -> None:
    """s3_gone_mid_save: the run goes on, and what is missing is written when the server is back."""
    screen = ScreenList()
    with run_location(bucket / "a", screen, is_new=True) as place:
        save(folder_of(place), 1)
        place.save()
        with s3.failing(lambda method, path: "403 Access Denied" if "state.json" in path else None):
            save(folder_of(place), 2)
            place.save()
            place.save()
        assert len([line for line in screen.lines if "the upload is tried again" in line]) == 1
        newest, _ = newest_checkpoint(local_run(bucket / "a", everything) / "checkpoints")
        assert newest is not None
        assert newest.step == 1
        place.save()
    newest, _ = newest_checkpoint(local_run(bucket / "a", everything) / "checkpoints")
    assert newest is not None
    assert newest.step == 2


def test_a_run_that_could_not_be_stored_says_where_it_is(s3: S3Server, bucket: Url) -> None:
    def refuse(method: str, path: str) -> str | None:
        return "403 Access Denied" if method == "PUT" and "lease" not in path else None

    def train_until_the_server_refuses() -> None:
        with run_location(bucket / "a", Screen(), is_new=True) as place:
            save(folder_of(place), 1)
            s3.fault = refuse

    with pytest.raises(BoxcrewError, match=r"cannot be written.*everything is in runs/s3/") as error:
        train_until_the_server_refuses()
    s3.fault = None
    assert f"boxcrew resume run={bucket}/a" in error.value.advice
    with run_location(bucket / "a", Screen(), is_new=False):  # on this computer: nothing is lost
        pass
    newest, _ = newest_checkpoint(local_run(bucket / "a", everything) / "checkpoints")
    assert newest is not None


def test_foreign_places_are_refused(bucket: Url) -> None:
    Store(bucket).write("letters/1.txt", b"mine")
    with (
        pytest.raises(UsageError, match=r"letters: not a run, and not empty .it has 1.txt"),
        run_location(bucket / "letters", Screen(), is_new=True),
    ):
        pass
    with (
        pytest.raises(UsageError, match="nothing is stored there"),
        run_location(bucket / "x", Screen(), is_new=False),
    ):
        pass
    with pytest.raises(UsageError, match="nothing is stored there"):
        local_run(bucket / "x", records)
    folder = Path("runs", "s3", bucket.path, "y")
    folder.mkdir(parents=True)
    with (
        pytest.raises(UsageError, match="is not the working copy"),
        run_location(bucket / "y", Screen(), is_new=True),
    ):
        pass
    assert folder.is_dir()
