"""TensorBoard may fail; the run may not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer.record_writer import RecordWriter

from boxcrew.train.output.tensorboard import TensorBoardLog


def shown(folder: Path) -> list[int]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return [event.step for event in events.Scalars("loss")]


def show(board: TensorBoardLog, step: int) -> None:
    board.show(lambda writer: writer.add_scalar("loss", 1.0, step))


def test_going_back_hides_what_was_shown(tmp_path: Path) -> None:
    board = TensorBoardLog(tmp_path, from_step=0, warn=pytest.fail)
    for step in range(1, 6):
        show(board, step)
    board.forget_after(2)
    show(board, 3)
    board.close()
    assert shown(tmp_path) == [1, 2, 3]
    assert not board.is_open
    show(board, 4)  # of no use, and no harm


def test_without_a_folder_it_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    board = TensorBoardLog(None, from_step=0, warn=pytest.fail)
    asked: list[object] = []
    board.show(asked.append)
    board.forget_after(0)
    board.show(asked.append)
    board.sync()
    board.close()
    assert asked == []
    assert list(tmp_path.iterdir()) == [], "nor in TensorBoard's own default, ./runs"


@pytest.mark.parametrize("jump", [-86400.0, 0.0], ids=["the clock is set back", "within a second"])
def test_a_run_that_goes_on_hides_what_came_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """Twice, and each time the file's name sorts as nobody would wish."""
    now = {"is": time.time()}
    monkeypatch.setattr(time, "time", lambda: now["is"])
    for begin, end in ((0, 5), (3, 8), (6, 7)):
        monkeypatch.setattr("os.getpid", lambda begin=begin: 5000 - begin)
        board = TensorBoardLog(tmp_path, from_step=begin, warn=pytest.fail)
        for step in range(begin + 1, end + 1):
            show(board, step)
        board.close()
        now["is"] += jump
    assert shown(tmp_path) == [1, 2, 3, 4, 5, 6, 7]


def test_what_was_shown_before_a_sync_is_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow TensorBoard's own thread is."""
    original: Callable[[RecordWriter, bytes], None] = RecordWriter.write

    def slow(self: RecordWriter, data: bytes) -> None:
        time.sleep(0.02)
        original(self, data)

    board = TensorBoardLog(tmp_path, from_step=0, warn=pytest.fail)
    monkeypatch.setattr(RecordWriter, "write", slow)
    for step in range(1, 11):
        show(board, step)
    board.sync()
    assert shown(tmp_path) == list(range(1, 11))
    board.close()
    board.sync()  # of no use, and no harm


def test_a_failing_file_is_given_up_and_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: RecordWriter, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    warnings: list[str] = []
    before = set(threading.enumerate())
    board = TensorBoardLog(tmp_path, from_step=0, warn=warnings.append)
    monkeypatch.setattr(RecordWriter, "write", fail)
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)  # TensorBoard's thread ends loudly
    end = time.monotonic() + 20
    while board.is_open and time.monotonic() < end:
        show(board, 1)
    assert not board.is_open
    show(board, 2)
    board.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=20)
    assert len(warnings) == 1
    assert "No space left" in warnings[0]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    warnings: list[str] = []
    board = TensorBoardLog(tmp_path / "file" / "tb", from_step=0, warn=warnings.append)
    show(board, 1)
    assert len(warnings) == 1


def test_a_slow_disk_does_not_hold_up_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of events wait in the queue while not one can be written."""
    may_write = threading.Event()
    original: Callable[[RecordWriter, bytes], None] = RecordWriter.write

    def wait(self: RecordWriter, data: bytes) -> None:
        assert may_write.wait(timeout=20)
        original(self, data)

    board = TensorBoardLog(tmp_path, from_step=0, warn=pytest.fail)
    monkeypatch.setattr(RecordWriter, "write", wait)
    for step in range(1, 501):
        show(board, step)
    may_write.set()
    board.close()
    assert len(shown(tmp_path)) == 500
