"""Run directories that are in use, gone or asked for the wrong thing; and clocks. Each test says what is
injected and what must hold.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from boxcrew.core.config import read_yaml, to_yaml
from boxcrew.core.errors import UsageError
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import list_checkpoints
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import lease, resume
from boxcrew.train.run.lock import locked
from tests.helpers.forked import boxcrew
from tests.helpers.runs import newest_tensors, require_equal, require_same_run

Run = Callable[..., Outcome]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def finished(folder: Path) -> dict[str, bytes]:
    """Return the contents of files, but of those that are being written under another name, or removed: a
    checkpoint loses its COMMIT first.
    """
    whole = {str(path.parent.relative_to(folder)) for path in folder.glob("checkpoints/*/COMMIT")}
    return {
        name: content
        for name, content in contents(folder).items()
        if "/." not in name and (not name.startswith("checkpoints/") or name.rpartition("/")[0] in whole)
    }


def test_two_runs_in_one_directory(photos: Path, whole: Path, tmp_path: Path, run: Run) -> None:
    """A run is asked to work where another one does -> refused with the other's process and host; nothing is
    touched; afterwards it may.
    """
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    with locked(out, print):
        before = contents(out)
        message = f"in use by process {os.getpid()} on "
        with pytest.raises(UsageError, match=message) as caught:
            run(photos, out, steps=9)
        assert caught.value.exit_code == 2
        with pytest.raises(UsageError, match=message):
            resume(out, {"steps": 9}, Screen())
        assert contents(out) == before
    assert resume(out, {"steps": 9}, Screen()).summary["steps"] == 9


AS_ELSEWHERE = """
import socket
from boxcrew.train.run import lease
socket.gethostname = lambda: "elsewhere"
lease.RENEWAL = 0.05
"""


def test_a_chief_that_wakes_up_late(
    config: Callable[..., RunConfig],
    photos: Path,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run on another host is stopped, and another takes its directory over -> when it goes on it writes
    nothing, and says why it ends.
    """
    out, settings = tmp_path / "run", tmp_path / "settings.yaml"
    settings.write_text(to_yaml(config(photos, out, steps=9999, saver={"every_steps": 1}, trial=False)))
    process = boxcrew("train", str(settings), first=AS_ELSEWHERE, cwd=tmp_path, HOME=str(home))
    end = time.monotonic() + 60
    while len(list_checkpoints(out / "checkpoints")) < 2:
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    monkeypatch.setattr(lease, "EXPIRY", 1.0)
    os.kill(process.pid, signal.SIGSTOP)
    with locked(out, print):
        before = finished(out)
        os.kill(process.pid, signal.SIGCONT)
        _, err = process.communicate(timeout=30)
        assert finished(out) == before
    assert process.returncode == 1
    assert f"{out}: taken over by process {os.getpid()} on " in err
    assert "nothing more is written there" in err


def test_a_directory_that_only_a_lock_is_in(photos: Path, tmp_path: Path, run: Run) -> None:
    """A run was killed before it wrote anything -> the next one begins there."""
    out = tmp_path / "run"
    out.mkdir()
    (out / "lock").write_text(
        json.dumps({"pid": 2**22 + 1, "host": os.uname().nodename, "born": "", "since": ""})
    )
    assert run(photos, out, steps=1).summary["steps"] == 1


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    """The run to go on with is not there -> exit code 2, and it is not made."""
    with pytest.raises(UsageError, match="not a run directory") as caught:
        resume(tmp_path / "absent", {}, Screen())
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"seed": 7}, "seed=7"),
        ({"batch": 2}, "batch=2"),
        ({"optim": {"rate": 0.5}}, "optim.rate=0.5"),
        ({"detector": {"backbone": "mobilenetv3_large_100"}}, "detector.backbone=mobilenetv3_large_100"),
    ],
)
def test_settings_that_would_change_the_past(
    photos: Path, whole: Path, run: Run, changes: dict[str, object], key: str
) -> None:
    """A run is to go on with another seed, batch, rate or network -> refused by name, nothing is touched."""
    before = contents(whole)
    with pytest.raises(UsageError, match=f"{key}: .* cannot change any more") as caught:
        resume(whole, {"steps": 20, **changes}, Screen())
    assert caught.value.exit_code == 2
    with pytest.raises(UsageError, match=f"{key}: .* cannot change any more"):
        run(photos, whole, steps=20, **changes)
    assert contents(whole) == before


def test_settings_that_may_change(photos: Path, tmp_path: Path, run: Run) -> None:
    """A run is made longer and gets a loader process -> allowed, said, recorded, and in effect."""
    out = tmp_path / "run"
    run(photos, out, steps=2)
    resume(out, {"steps": 4, "loader": {"workers": 1}}, Screen())
    resume(out, {"steps": 5}, Screen())
    lines = [json.loads(line) for line in (out / "changes.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4]
    assert lines[0]["changes"] == {
        "loader.workers": {"from": 0, "to": 1},
        "steps": {"from": 2, "to": 4},
    }
    assert lines[1]["changes"] == {"steps": {"from": 4, "to": 5}}
    stored = RunConfig.of(read_yaml(out / "config.yaml"))
    assert (stored.steps, stored.loader.workers) == (5, 1)
    log = (out / "train.log").read_text()
    assert "changed: loader.workers 0 -> 1, steps 2 -> 4" in log
    assert "cosine, warmup are relative to it" in log


def test_a_clock_that_jumps(
    photos: Path, whole: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock on the wall is set a year back and forth at every look at it -> the same run, of the same
    length, saved as often.
    """
    year, looks = 365 * 86400, iter(range(10**6))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + year * (-1) ** next(looks))
    start = time.monotonic()
    out = tmp_path / "run"
    outcome = run(photos, out, saver={"every_steps": None, "every_epochs": None, "every_seconds": 3600})
    assert 0 < outcome.summary["train_seconds"] <= time.monotonic() - start
    assert sorted(int(p.name) for p in (out / "checkpoints").iterdir()) == [0, 8]
    monkeypatch.undo()
    require_equal(newest_tensors(out), newest_tensors(whole))
    require_same_run(out, whole)
