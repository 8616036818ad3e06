"""A service in a process of its own, and a client for it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_SECONDS = 30.0  # that anything here may take, at most


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer of the service."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(kw_only=True)
class Served:
    """A service that runs. What it has logged is in `lines`."""

    process: subprocess.Popen[str]
    url: str
    lines: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def ask(
        self,
        path: str,
        body: bytes | Iterator[bytes] | None = None,
        *,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = _SECONDS,
    ) -> Answer:
        """Return the answer to one request, over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            sent = {"Content-Type": "image/jpeg"} if body is not None else {}
            connection.request(
                method or ("GET" if body is None else "POST"), path, body, {**sent, **(headers or {})}
            )
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(status=response.status, headers=found, body=response.read())
        finally:
            connection.close()

    def log(self, event: str = "request") -> list[dict[str, Any]]:
        """Return the records of one kind in the log."""
        records = [json.loads(line) for line in list(self.lines) if line.startswith("{")]
        return [record for record in records if record["event"] == event]

    def wait_until_ready(self) -> None:
        while self.ask("/v2/health/ready").status != 200:
            assert self.process.poll() is None, self.lines

    def end(self) -> int:
        """Tell the service to end, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_SECONDS)


@contextmanager
def served(
    *words: object,
    command: str = "serve",
    environment: Mapping[str, str] | None = None,
    ready: bool = True,
) -> Iterator[Served]:
    """Run `boxcrew serve`, or another command, with these settings, on a free port if none is among them."""
    port = () if any(str(word).startswith("port=") for word in words) else ("port=0",)
    line = [sys.executable, "-m", "boxcrew", command, *map(str, words), *port]
    environ = {**os.environ, **(environment or {})}
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)
    assert process.stdout is not None
    assert process.stderr is not None
    service = Served(process=process, url="")
    reader = threading.Thread(target=lambda: service.lines.extend(process.stderr or ()), daemon=True)
    reader.start()
    try:
        announced = process.stdout.readline()
        if not announced:
            process.wait(_SECONDS)
            reader.join(_SECONDS)
            raise AssertionError(f"exit code {process.returncode}: {service.lines}")
        service.url = announced.split()[-1]
        if ready:
            service.wait_until_ready()
        yield service
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        reader.join(_SECONDS)
        process.stdout.close()
        process.stderr.close()


def form(files: Mapping[str, bytes], *, boundary: str = "cut") -> tuple[bytes, dict[str, str]]:
    """Return a form with these files, and its headers."""
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="photo"; filename="{name}"\r\n\r\n'.encode()
        + content
        + b"\r\n"
        for name, content in files.items()
    ]
    body = b"".join(parts) + f"--{boundary}--\r\n".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={boundary}"}
