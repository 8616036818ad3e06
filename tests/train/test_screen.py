"""A bar on a terminal, silence elsewhere."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from boxcrew.train.screen import Screen


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
    assert (tmp_path / "log").read_text() == ""
