"""An actor that runs one command of boxcrew in a process of its machine, and passes on what it prints.

The process is not the actor's own: it has a main thread, which signals reach, and may be killed alone. If the
actor is killed, the system ends the process with it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from boxcrew.core.parent_process import LAUNCHER

_WAIT = 0.5  # seconds until there is an answer, also without a line
OUT, ERR = 1, 2  # where a line was printed


class Address(NamedTuple):
    """A machine of the cluster as a rendezvous, and whether it sees the directory of the run."""

    host: str
    port: int
    has_folder: bool


class News(NamedTuple):
    """The lines that a process has printed since the last news, and its exit code once it has ended."""

    lines: list[tuple[int, str]]
    code: int | None


class RemoteProcess:
    """The actor. Its methods are called from the process of the user's command, several at a time."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, str]] = []
        self._code: int | None = None
        self._changed = threading.Condition()
        self._process: subprocess.Popen[str] | None = None
        self._is_stopped = False

    def address(self, folder: str | None) -> Address:
        """Return where a process of this machine can be found; `folder` should be there too."""
        import ray

        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        has_folder = folder is None or Path(folder).is_dir()
        return Address(ray.util.get_node_ip_address(), port, has_folder)

    def start(self, words: Sequence[str], variables: Mapping[str, str], cwd: str) -> None:
        """Begin `boxcrew` with these words, in a directory of this name if there is one."""
        threading.Thread(target=self._run, args=(words, variables, cwd), daemon=True).start()

    def news(self) -> News:
        """Wait a moment for lines or for the end, and return them."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._code is not None, _WAIT)
            lines, self._lines = self._lines, []
            return News(lines, self._code)

    def stop(self) -> None:
        """Let it finish its step, save and end."""
        with self._changed:
            self._is_stopped = True
            if self._process is not None and self._code is None:
                self._process.send_signal(signal.SIGTERM)

    def _run(self, words: Sequence[str], variables: Mapping[str, str], cwd: str) -> None:
        """Run the command. It ends with the thread that has started it: this one stays until it has ended."""
        environment = {**os.environ, **variables, LAUNCHER: str(os.getpid())}
        with self._changed:
            if self._is_stopped:
                self._code = -signal.SIGTERM
                return
            self._process = process = subprocess.Popen(  # noqa: S603 - our own words
                [sys.executable, "-m", "boxcrew", *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                text=True,
                errors="replace",
                cwd=cwd if Path(cwd).is_dir() else tempfile.gettempdir(),
                env=environment,
            )
        readers = [
            threading.Thread(target=self._read, args=(where, stream), daemon=True)
            for where, stream in ((OUT, process.stdout), (ERR, process.stderr))
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        code = process.wait()
        with self._changed:
            self._code = code
            self._changed.notify_all()

    def _read(self, where: int, stream: IO[str]) -> None:
        for line in stream:
            with self._changed:
                self._lines.append((where, line.rstrip("\n")))
                self._changed.notify_all()
