"""A process full of clients: `python -m bench.serving.load SPEC` prints what they have seen, as JSON.

A closed load has so many clients, each of which asks as soon as it was answered. An open load (`rate`) asks
at fixed times whether the service keeps up or not, and counts each answer's time from when it was due.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.serving.client import Answer, Connection

_PATIENCE = 30.0  # seconds that a client waits before it calls a request lost


@dataclass(frozen=True, kw_only=True)
class Load:
    """The task of the clients."""

    port: int
    photos: tuple[str, ...]  # files, sent in turn
    clients: int
    seconds: float
    path: str = "/v1/detect"
    content_type: str = "image/jpeg"
    rate: float = 0.0  # requests a second of all clients together; 0 for as many as possible
    num: int = 0  # requests of all clients together, at most; 0 for as many as fit into the time
    deadline: float = 0.0  # seconds of X-Timeout; 0 for none
    pause: float = 0.0  # seconds that a client waits after it was refused
    until: str = ""  # a file: the clients end when it is there


@dataclass(kw_only=True)
class Seen:
    """The answers that the clients have seen."""

    codes: dict[int, int] = field(default_factory=dict)  # how many answers had each status
    milliseconds: list[float] = field(default_factory=list)  # of answers with 200
    worst: float = 0.0  # milliseconds until any answer, at most
    lost: int = 0  # requests without an answer
    versions: dict[str, int] = field(default_factory=dict)  # of the model, and how many answers each gave
    seconds: float = 0.0


def run_load(load: Load) -> Seen:
    """Run the clients in a process of their own, and return what they have seen."""
    return start_load(load).seen()


@dataclass(frozen=True, kw_only=True)
class RunningLoad:
    """A load that is going on in a process of its own."""

    process: subprocess.Popen[str]

    def seen(self) -> Seen:
        """Wait until it is over."""
        text, _ = self.process.communicate()
        if self.process.returncode:
            raise RuntimeError(f"the load ended with exit code {self.process.returncode}")
        values: dict[str, Any] = json.loads(text.splitlines()[-1])
        codes = {int(code): num for code, num in values.pop("codes").items()}
        return Seen(codes=codes, **values)


def start_load(load: Load) -> RunningLoad:
    """Start the clients in a process of their own."""
    command = [sys.executable, "-m", "bench.serving.load", json.dumps(asdict(load))]
    return RunningLoad(process=subprocess.Popen(command, stdout=subprocess.PIPE, text=True))


class _Clients:
    """The clients of one load, each in a thread."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._photos = [Path(name).read_bytes() for name in load.photos]
        self._headers = {"Content-Type": load.content_type}
        if load.deadline:
            self._headers["X-Timeout"] = f"{load.deadline:g}"
        self._seen, self._next = Seen(), 0
        self._lock = threading.Lock()
        self._begun = time.perf_counter()

    def run(self) -> Seen:
        threads = [threading.Thread(target=self._client, daemon=True) for _ in range(self._load.clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._seen.seconds = time.perf_counter() - self._begun
        return self._seen

    def _client(self) -> None:
        with Connection(self._load.port, timeout=_PATIENCE) as connection:
            while (number := self._take()) is not None:
                due = self._wait(number)
                photo = self._photos[number % len(self._photos)]
                try:
                    answer = connection.ask(self._load.path, photo, headers=self._headers)
                except OSError:
                    answer = Answer(status=0, headers={}, body=b"")
                    connection.close()
                self._count(answer, 1000 * (time.perf_counter() - due))
                if answer.status != 200:
                    time.sleep(self._load.pause)

    def _take(self) -> int | None:
        """Return the number of the next request; None if there is none."""
        if self._load.until and Path(self._load.until).exists():
            return None
        with self._lock:
            due = self._next / self._load.rate if self._load.rate else time.perf_counter() - self._begun
            if due >= self._load.seconds or (self._load.num and self._next >= self._load.num):
                return None
            self._next += 1
            return self._next - 1

    def _wait(self, number: int) -> float:
        """Wait until a request is due, and return when that was."""
        if not self._load.rate:
            return time.perf_counter()
        due = self._begun + number / self._load.rate
        time.sleep(max(0.0, due - time.perf_counter()))
        return due

    def _count(self, answer: Answer, milliseconds: float) -> None:
        version = json.loads(answer.body)["model"]["version"] if self._has_version(answer) else ""
        with self._lock:
            seen = self._seen
            seen.worst = max(seen.worst, milliseconds)
            if answer.status == 0:
                seen.lost += 1
                return
            seen.codes[answer.status] = 1 + seen.codes.get(answer.status, 0)
            if answer.status == 200:
                seen.milliseconds.append(round(milliseconds, 3))
            if version:
                seen.versions[version] = 1 + seen.versions.get(version, 0)

    @staticmethod
    def _has_version(answer: Answer) -> bool:
        return answer.status == 200 and b'"version"' in answer.body[:400]


def percentile(milliseconds: list[float], share: float) -> float:
    """Return the value that so large a share of all is not above."""
    return sorted(milliseconds)[min(len(milliseconds) - 1, int(share * len(milliseconds)))]


if __name__ == "__main__":
    _values = json.loads(sys.argv[1])
    print(json.dumps(asdict(_Clients(Load(**{**_values, "photos": tuple(_values["photos"])})).run())))
