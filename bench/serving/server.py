"""Services as processes: started, asked, and read for what they cost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from bench.child import boxcrew
from bench.ports import free_port
from bench.serving.client import Answer, Connection

_START = 120.0  # seconds that a service may take to answer
_END = 40.0
MIB = 1024**2
JPEG = "image/jpeg"


@dataclass(kw_only=True)
class Server:
    """A service that runs."""

    process: subprocess.Popen[bytes]
    port: int
    errors: IO[bytes]  # what it has written to stderr
    start_seconds: float = 0.0  # from the start of its process to its first answer

    def cpu_seconds(self) -> float:
        """Return the time on the CPU of all its processes so far."""
        times = [process.cpu_times() for process in self._processes()]
        return sum(each.user + each.system for each in times)

    def uss(self) -> int:
        """Return the bytes of memory that no process but its own uses."""
        return sum(int(process.memory_full_info().uss) for process in self._processes())

    def num_processes(self) -> int:
        return len(self._processes())

    def num_files(self) -> int:
        """Return how many files and sockets its main process has open."""
        return int(psutil.Process(self.process.pid).num_fds())

    def kill(self, sig: signal.Signals) -> None:
        os.kill(self.process.pid, sig)

    def log(self) -> str:
        self.errors.flush()
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def ask(
        self, path: str, body: bytes | None = None, *, content_type: str = JPEG, timeout: float = 30.0
    ) -> Answer:
        """Return the answer to one request on a connection of its own."""
        with Connection(self.port, timeout=timeout) as connection:
            headers = {} if body is None else {"Content-Type": content_type}
            return connection.ask(path, body, headers=headers)

    def _processes(self) -> list[psutil.Process]:
        main = psutil.Process(self.process.pid)
        return [main, *main.children(recursive=True)]


@contextmanager
def running(
    command: Sequence[str], port: int, *, path: str, photo: bytes, content_type: str = JPEG
) -> Iterator[Server]:
    """Run a service until the block ends. It has begun when a photo was answered at `path`."""
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)
        server = Server(process=process, port=port, errors=errors)
        try:
            _await(server, lambda: server.ask(path, photo, content_type=content_type))
            server.start_seconds = time.perf_counter() - start
            yield server
        finally:
            _end(server)


@contextmanager
def serving(model: Path, photo: bytes, *words: str, content_type: str = JPEG) -> Iterator[Server]:
    """Run `boxcrew serve` until the block ends."""
    port = free_port()
    command = boxcrew("serve", f"run={model}", f"port={port}", *words)
    with running(command, port, path="/v1/detect", photo=photo, content_type=content_type) as server:
        yield server


def peer_command(peer: str, script: str, *words: str) -> list[str]:
    """Return the command that runs a script of `peers` with the interpreter of one."""
    root = Path(__file__).parents[2]
    interpreter = root / ".peers" / peer / "bin" / "python"
    return [str(interpreter), str(root / "bench" / "peers" / f"{script}.py"), *words]


def _await(server: Server, ask: Callable[[], Answer]) -> None:
    """Wait until a photo is answered."""
    until = time.monotonic() + _START
    while server.process.poll() is None and time.monotonic() < until:
        try:
            if ask().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.005)
    print(server.log()[-2000:], file=sys.stderr)
    raise RuntimeError(f"no service began on port {server.port}")


def _end(server: Server) -> None:
    """End all of its processes."""
    family = server._processes() if server.process.poll() is None else []
    server.process.terminate()
    try:
        server.process.wait(_END)
    except subprocess.TimeoutExpired:
        server.process.kill()
        server.process.wait()
    for process in family[1:]:
        if process.is_running():
            process.kill()
