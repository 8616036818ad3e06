"""The command as a user calls it, in this process: starting torch anew for each test would take minutes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from boxcrew.cli.main import main


@dataclass(frozen=True)
class CommandResult:
    code: int
    out: str
    err: str


Call = Callable[..., CommandResult]


@pytest.fixture
def boxcrew(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """`boxcrew("train", "data=x")` -> exit code and what was printed."""
    hook = sys.excepthook

    def call(*words: str) -> CommandResult:
        monkeypatch.setattr(sys, "argv", ["boxcrew", *words])
        monkeypatch.setattr(sys, "excepthook", hook)
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        code = stop.value.code
        message = capsys.readouterr()
        return CommandResult(
            code if isinstance(code, int) else int(code is not None), message.out, message.err
        )

    return call
