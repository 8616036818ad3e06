"""A bar on a terminal, silence elsewhere; and lines that cannot be written."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from boxcrew.core.files import append
from boxcrew.train.output.screen import Screen


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_for_terminals(terminal: bool, tmp_path: Path) -> None:
    written = io.StringIO()
    screen = Screen(Console(file=written, force_terminal=terminal, width=100))
    with screen.progress("looking at the images") as progress:
        for done in range(0, 501, 100):
            progress(done, 500)
    assert ("looking at the images" in written.getvalue()) == terminal
    assert ("500/500" in written.getvalue()) == terminal
    screen.open_log(tmp_path / "log")
    screen.close_log()
    assert not (tmp_path / "log").exists(), "there was nothing to note"


def screen_text(screen: Screen) -> str:
    file = screen.console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def log_lines(log: Path) -> list[str]:
    return [line.split(" ", 2)[2] for line in log.read_text().splitlines() if line[:1].isdigit()]


@pytest.fixture
def screen() -> Screen:
    return Screen(Console(file=io.StringIO(), width=200))


def test_lines_that_find_no_room_wait(screen: Screen, tmp_path: Path) -> None:
    log = tmp_path / "absent" / "train.log"
    screen.info("before there is a log")
    screen.open_log(log)
    screen.info("one")
    screen.warn("two")
    log.parent.mkdir()
    screen.info("three")
    assert log_lines(log) == ["before there is a log", "one", "warning: two", "three"]
    assert screen_text(screen).count("could not be written") == 1
    shutil.rmtree(log.parent)
    screen.info("four")
    assert screen_text(screen).count("could not be written") == 2, "it is news again"
    screen.close_log()
    assert "1 lines could not be written" in screen_text(screen)


def test_not_all_lines_can_wait_for_ever(
    screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxcrew.train.output.screen.MAX_PENDING", 2)
    log = tmp_path / "absent" / "train.log"
    screen.open_log(log)
    for number in range(5):
        screen.info(str(number))
    log.parent.mkdir()
    screen.info("5")
    assert log_lines(log) == ["3", "4", "5"]
    assert log.read_text().startswith("(3 lines are missing here)")


def test_without_a_log_only_the_last_lines_wait_for_one(
    screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command without a log, such as predict, may print a million lines."""
    monkeypatch.setattr("boxcrew.train.output.screen.MAX_PENDING", 2)
    for line in ("one", "two", "three", "four", "five"):
        screen.info(line)
    screen.open_log(tmp_path / "log")
    lines = [line.split(" ", 2)[-1] for line in (tmp_path / "log").read_text().splitlines()[1:]]
    assert lines == ["four", "five"]
    assert "(3 lines are missing here)" in (tmp_path / "log").read_text()


def test_a_screen_that_is_gone(tmp_path: Path) -> None:
    """Such as standard error in a file on a full disk."""
    full = Path("/dev/full").open("w")  # noqa: SIM115 - closing it is an error as well
    screen = Screen(Console(file=full, width=200))
    screen.open_log(tmp_path / "log")
    screen.info("one")
    screen.table("two", ("a", "b"), [("x", "y")])
    assert log_lines(tmp_path / "log")[:2] == ["one", "two"]
    with pytest.raises(OSError, match="No space left"):
        full.close()


def test_a_signal_between_two_lines(screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that a signal handler prints while another is written are logged, and nothing is logged twice."""
    log = tmp_path / "log"
    screen.open_log(log)
    calls = iter(range(100))

    def interrupted(path: Path, text: str) -> None:
        if next(calls) == 0:
            append(path, text)
            screen.info("from the handler")
        else:
            append(path, text)

    monkeypatch.setattr("boxcrew.train.output.screen.append", interrupted)
    screen.info("from the loop")
    screen.info("the end")
    assert log_lines(log) == ["from the loop", "from the handler", "the end"]


def test_the_title_of_a_narrow_table_is_one_line() -> None:
    screen = Screen(Console(file=io.StringIO(), width=100))
    screen.table("best weights, step 13500", ("", "x"), [("made", "6")])
    assert screen_text(screen).splitlines()[0] == "best weights, step 13500"


@pytest.mark.parametrize(
    "text", ["cat [old]", "[/s]", "[bold]x[/bold]", ":smile:", "a\tb", "x" * 300, "a\n\nb "]
)
def test_text_means_nothing_but_itself(screen: Screen, tmp_path: Path, text: str) -> None:
    screen.open_log(tmp_path / "log")
    screen.info(text)
    assert screen_text(screen) == f"{text}\n"
    screen.warn(text)
    assert screen_text(screen) == f"{text}\nwarning: {text}\n"
    assert (tmp_path / "log").read_text().count(text) == 2


@pytest.mark.parametrize("text", ["cat [old]", "[/s]", "[bold]x[/bold]", ":smile:"])
def test_cells_mean_nothing_but_themselves(screen: Screen, text: str) -> None:
    screen.table(text, (text, "b"), [(text, "y")])
    title, head, row = screen_text(screen).splitlines()
    assert title == text
    assert head.split("  ") == [text, "b"]
    assert row.split("  ") == [text, "y"]


def test_warnings_and_heads_of_tables_keep_their_styles() -> None:
    console = Console(
        file=io.StringIO(), width=200, force_terminal=True, color_system="standard", no_color=False
    )
    screen = Screen(console)
    screen.warn("[red]")
    assert screen_text(screen) == "\x1b[33mwarning: [red]\x1b[0m\n"
    screen.table("t", ("a", "b"), [("[red]", "2")])
    assert "\x1b[3mt\x1b[0m\n" in screen_text(screen)
    assert "\x1b[1ma" in screen_text(screen)


@pytest.mark.parametrize(("encoding", "word"), [("utf-8", "größe"), ("ascii", "gr\\xf6\\xdfe")])
def test_what_the_screen_has_no_characters_for_is_escaped(tmp_path: Path, encoding: str, word: str) -> None:
    name = os.fsdecode(b"caf\xe9.png")
    with (tmp_path / "out").open("w", encoding=encoding) as file:
        screen = Screen(Console(file=file, width=30))
        screen.open_log(tmp_path / "log")
        screen.info(f"größe {name}")
        screen.table(name, (name, "b"), [("größe", "2"), ("long " * 20, "3")])  # cut, with an ellipsis
        screen.info("the end")
    shown = (tmp_path / "out").read_text(encoding=encoding)
    assert shown.splitlines()[:2] == [f"{word} caf\\udce9.png", "caf\\udce9.png"]
    assert shown.endswith("the end\n")
    assert log_lines(tmp_path / "log")[0] == "größe caf\\udce9.png"
