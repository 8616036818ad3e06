"""Disks that are full, read-only or fail. Each test says what is injected and what must hold."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console
from tensorboard.summary.writer.record_writer import RecordWriter

from boxcrew.api import train_run
from boxcrew.core.errors import BoxcrewError, UsageError
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import list_checkpoints, newest_checkpoint
from boxcrew.train.loop.hooks.progress import ProgressReport
from boxcrew.train.loop.trainer import StepReport, Trainer
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import resume, train
from tests.helpers.runs import require_same_run

Run = Callable[..., Outcome]
MakeConfig = Callable[..., RunConfig]
Fail = Callable[[Callable[[str], bool]], None]
AtStep = Callable[[Callable[[int], None]], None]


@pytest.fixture
def fail_flush(monkeypatch: pytest.MonkeyPatch) -> Fail:
    """`(is_full)`: flushing a file fails for want of space where `is_full(its path)`; below our own layer."""
    original = os.fsync

    def start(is_full: Callable[[str], bool]) -> None:
        def fsync(handle: int) -> None:
            if is_full(os.readlink(f"/proc/self/fd/{handle}")):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            original(handle)

        monkeypatch.setattr(os, "fsync", fsync)

    return start


@pytest.fixture
def at_step(monkeypatch: pytest.MonkeyPatch) -> AtStep:
    """`(act)`: calls `act(step)` after each step."""
    original = ProgressReport.after_step

    def start(act: Callable[[int], None]) -> None:
        def after_step(self: ProgressReport, trainer: Trainer, report: StepReport) -> None:
            original(self, trainer, report)
            act(trainer.step)

        monkeypatch.setattr(ProgressReport, "after_step", after_step)

    return start


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 32 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_no_room_for_a_checkpoint(
    photos: Path, whole: Path, tmp_path: Path, run: Run, fail_flush: Fail
) -> None:
    """The disk is full while the checkpoint of step 3 is written -> said once with how much is needed and
    free; the one before stays; the run goes on and ends as if nothing had been.
    """
    out = tmp_path / "run"
    fail_flush(lambda path: "/.00000003." in path)
    outcome = run(photos, out)
    assert outcome.summary["state"] == "finished"
    assert outcome.trouble is None
    log = (out / "train.log").read_text()
    assert log.count("could not be written") == 1
    assert "the checkpoint of step 3 could not be written: No space left on device; it needs" in log
    assert "are free" in log
    require_same_run(out, whole)


def test_no_room_for_any_file(
    photos: Path, whole: Path, tmp_path: Path, run: Run, fail_flush: Fail, at_step: AtStep
) -> None:
    """No file can be flushed between steps 2 and 5 -> the same: numbers, status and best weights wait."""
    out = tmp_path / "run"
    full = {"is": False}
    at_step(lambda step: full.update({"is": 2 <= step < 5}))
    fail_flush(lambda path: full["is"])
    outcome = run(photos, out)
    assert outcome.trouble is None
    assert (out / "weights" / "best.safetensors").is_file()
    require_same_run(out, whole)


def test_no_room_at_the_end(photos: Path, tmp_path: Path, config: MakeConfig, fail_flush: Fail) -> None:
    """The disk is full when the run ends -> all that can be written is, then exit code 1; with room again,
    resume makes up for it.
    """
    out = tmp_path / "run"
    full = {"is": True}
    fail_flush(lambda path: full["is"] and "/.00000008." in path)
    with pytest.raises(BoxcrewError, match="checkpoint of step 8 could not be written") as caught:
        train_run(config(photos, out), Screen())
    assert caught.value.exit_code == 1
    assert json.loads((out / "summary.json").read_text())["state"] == "finished"
    assert (out / "weights" / "last.safetensors").is_file()
    assert (out / "plots" / "results.png").is_file()
    assert [int(p.name) for p in list_checkpoints(out / "checkpoints")] == [3, 6]
    full["is"] = False
    resume(out, {}, Screen())
    assert [int(p.name) for p in list_checkpoints(out / "checkpoints")] == [6, 8]


def test_a_disk_that_fills_up(
    photos: Path,
    whole: Path,
    small_disk: Path,
    run: Run,
    at_step: AtStep,
) -> None:
    """A real file system has 100 kB left from step 2 on, and room again from step 5 on -> no checkpoint of
    step 3, the run goes on and ends as if nothing had been.
    """
    out, filler = small_disk / "run", small_disk / "filler"

    def act(step: int) -> None:
        if step == 2:
            free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
            filler.write_bytes(bytes(free - 100_000))
        if step == 5:
            filler.unlink()

    at_step(act)
    outcome = run(photos, out)
    assert outcome.trouble is None
    log = (out / "train.log").read_text()
    assert "the checkpoint of step 3 could not be written: No space left on device" in log
    assert "checkpoints are written again" in log
    newest, complaints = newest_checkpoint(out / "checkpoints")
    assert newest is not None
    assert (newest.step, complaints) == (8, [])
    require_same_run(out, whole)


def fill(disk: Path) -> None:
    """To the last byte."""
    with (disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    assert os.statvfs(disk).f_bavail == 0


def test_a_disk_without_a_single_byte(
    photos: Path,
    whole: Path,
    small_disk: Path,
    config: MakeConfig,
    at_step: AtStep,
) -> None:
    """A real file system is full to the last byte from step 2 on, and has room again from step 5 on; so much
    is said between that the log needs more -> the run goes on, its lines wait, and nothing is missing.
    """
    out, console = small_disk / "run", Console(file=io.StringIO(), width=500)
    screen = Screen(console)

    def act(step: int) -> None:
        if step == 2:
            fill(small_disk)
        if 2 <= step < 5:
            screen.info(f"long line of step {step} " + "." * 5000)
        if step == 5:
            (small_disk / "filler").unlink()

    at_step(act)
    outcome = train(config(photos, out), screen)
    assert outcome.trouble is None
    log = (out / "train.log").read_text()
    assert [log.count(f"long line of step {step} ") for step in (2, 3, 4)] == [1, 1, 1]
    assert console.file.getvalue().count("train.log could not be written") == 1  # type: ignore[attr-defined]
    require_same_run(out, whole)


def test_a_disk_that_stays_full(
    photos: Path,
    whole: Path,
    small_disk: Path,
    config: MakeConfig,
    at_step: AtStep,
) -> None:
    """A real file system is full to the last byte from step 4 on -> all steps are done, exit code 1 says what
    is missing; with room again resume makes up for it from the last whole checkpoint.
    """
    out, times = small_disk / "run", [4]

    def act(step: int) -> None:
        if step in times:
            times.remove(step)
            fill(small_disk)

    at_step(act)
    with pytest.raises(BoxcrewError, match="not all files could be written") as caught:
        train_run(config(photos, out), Screen())
    assert caught.value.exit_code == 1
    assert [int(p.name) for p in list_checkpoints(out / "checkpoints")] == [0, 3]
    (small_disk / "filler").unlink()
    assert resume(out, {}, Screen()).trouble is None
    require_same_run(out, whole)


def test_a_disk_that_becomes_read_only(
    photos: Path, whole: Path, small_disk: Path, run: Run, at_step: AtStep
) -> None:
    """A real file system is read-only from step 2 on, as after an error of the disk, and can be written to
    again from step 5 on -> the run goes on and ends as if nothing had been.
    """
    modes = {2: "ro", 5: "rw"}

    def act(step: int) -> None:
        if step in modes:
            subprocess.run(["mount", "-o", f"remount,{modes[step]}", str(small_disk)], check=True)

    at_step(act)
    outcome = run(photos, small_disk / "run")
    assert outcome.trouble is None
    log = (small_disk / "run" / "train.log").read_text()
    assert "the checkpoint of step 3 could not be written: Read-only file system" in log
    require_same_run(small_disk / "run", whole)


def test_a_disk_that_may_only_be_read(photos: Path, small_disk: Path, run: Run) -> None:
    """The run directory is on a file system mounted read-only -> refused before anything is trained."""
    run(photos, small_disk / "run", steps=2)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for place, again in ((small_disk / "run", {"steps": 4}), (small_disk / "new", {})):
        with pytest.raises(UsageError, match="cannot be written to: Read-only file system") as caught:
            run(photos, place, **again)
        assert caught.value.exit_code == 2
    with pytest.raises(UsageError, match="Read-only file system"):
        resume(small_disk / "run", {"steps": 4}, Screen())


def test_a_directory_that_cannot_be_made(
    photos: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run directory would lie in a file -> refused before the data is even looked at."""
    (tmp_path / "file").write_text("mine")
    monkeypatch.setattr(
        "boxcrew.train.run.data.load_task_data", lambda *_, **__: pytest.fail("looked at the data")
    )
    with pytest.raises(UsageError, match="cannot be written to: Not a directory"):
        run(photos, tmp_path / "file" / "run")
    assert (tmp_path / "file").read_text() == "mine"


def test_tensorboard_fails(
    photos: Path, whole: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorBoard's file cannot be written to -> given up with one warning; nothing else is different."""

    def fail(self: RecordWriter, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RecordWriter, "flush", lambda self: fail(self, b""))
    out = tmp_path / "run"
    run(photos, out, summaries={"tensorboard": True, "images": 2})
    assert (out / "train.log").read_text().count("TensorBoard is turned off") == 1
    shutil.rmtree(out / "tensorboard")
    require_same_run(out, whole)


def test_tensorboard_has_a_full_queue(
    photos: Path, whole: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorBoard's thread is slow and one event fills its queue -> the loop waits for it, and no point is
    missing, nor twice.
    """
    original: Callable[[RecordWriter, bytes], None] = RecordWriter.write

    def slow(self: RecordWriter, data: bytes) -> None:
        time.sleep(0.001)
        original(self, data)

    monkeypatch.setattr("boxcrew.train.output.tensorboard.QUEUE", 1)
    monkeypatch.setattr(RecordWriter, "write", slow)
    out = tmp_path / "run"
    run(photos, out, summaries={"tensorboard": True})
    assert (out / "tensorboard").is_dir()
    require_same_run(out, whole)
