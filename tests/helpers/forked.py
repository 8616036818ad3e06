"""Processes that begin with torch and boxcrew imported: they are forked from one that did it in some seconds.

Such a process is one of its own in every other way: it has its number, environment, directory, output and
session, gets signals, and may be killed. The replicas that it starts are forked too.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Never

from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tests.helpers.preloaded"])

BOXCREW = """
from boxcrew.cli.main import main
main()
"""

UNDRAWN = """
import boxcrew.api.runs
boxcrew.api.runs._draw = lambda outcome: None
"""
"""A run ends without its plots, which take longer than all else in a run of a few steps."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Code with what is given to it, and the surroundings in which it runs."""

    code: str
    given: Mapping[str, object] = field(default_factory=dict)
    words: tuple[str, ...] = ()  # on the command line
    cwd: Path = Path()
    environment: Mapping[str, str] = field(default_factory=dict)  # added to what there is here


class Forked:
    """A process that does a job, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, job: Job) -> None:
        self._folder = tempfile.TemporaryDirectory()
        environment = {**os.environ, **job.environment}
        self._process = SERVER.Process(
            target=_do, args=(replace(job, cwd=job.cwd.absolute(), environment=environment), self._outputs)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def _outputs(self) -> tuple[Path, Path]:
        return Path(self._folder.name) / "stdout", Path(self._folder.name) / "stderr"

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return what it has written to stdout and stderr, once it has ended."""
        self.wait(timeout)
        out, err = (path.read_text() if path.exists() else "" for path in self._outputs)
        return out, err

    def kill(self) -> None:
        self._process.kill()


def boxcrew(*words: str, first: str = "", cwd: Path, **environment: str) -> Forked:
    """`python -m boxcrew` with these words; `first` is run before it, also in each replica."""
    job = Job(code=first + BOXCREW, words=("boxcrew", *words), cwd=cwd, environment=environment)
    return Forked(job)


def _do(job: Job, outputs: tuple[Path, Path]) -> None:
    with outputs[0].open("w") as out, outputs[1].open("w") as err:
        _become(job, out=out, err=err)


def _become(job: Job, *, out: IO[str] | None, err: IO[str] | None) -> Never:
    """Do a job as a new Python would, and end as one. What it prints goes on where there is no file."""
    os.setsid()
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for file, target in ((out, 1), (err, 2)):
        if file is not None:
            os.dup2(file.fileno(), target)
    os.environ.clear()
    os.environ.update(job.environment)
    atexit._clear()
    code = _exit_code(lambda: _work(job))
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _exit_code(work: Callable[[], None]) -> int:
    try:
        work()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:  # noqa: BLE001 - as Python itself does
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _work(job: Job) -> None:
    os.chdir(job.cwd)
    sys.argv = list(job.words)

    def start(self: SubprocessHandler, args: tuple[str, ...], env: dict[str, str]) -> _Replica:
        assert args[1:3] == ("-m", "boxcrew"), args
        return _Replica(replace(job, words=args[2:], environment=env), out=self._stdout, err=self._stderr)

    SubprocessHandler._popen = start  # type: ignore[method-assign,assignment]
    exec(compile(job.code, "<job>", "exec"), {"__name__": "__main__", "given": job.given})


class _Replica:
    """A process that torch's launcher starts, with the part of `subprocess.Popen` that it uses."""

    def __init__(self, job: Job, *, out: IO[str] | None, err: IO[str] | None) -> None:
        self.pid = os.fork()
        self.returncode: int | None = None
        if self.pid == 0:
            _become(job, out=out, err=err)

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(0.01)
        return code
