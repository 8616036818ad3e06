"""Signals to a service with requests under way: told to end, stopped for ten seconds, killed."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from bench.row import Row, skipped
from bench.serving.client import Answer, Connection
from bench.serving.material import Material, material
from bench.serving.server import Server, serving

COMMAND = "python -m bench serve_signals"
IN_FLIGHT, STOPPED, DEADLINE = 20, 10.0, 5.0

_SETTLE = 0.1  # seconds until all requests have arrived
_MARGIN = 1.0  # seconds after the process goes on in which all have to be told
Timed = tuple[int, float]
"""A status, 0 for a closed connection, and the seconds until it came."""


def rows() -> list[Row]:
    made = material()
    if made is None:
        return [skipped(what="signals", reason="no home to keep a model in", command=COMMAND)]
    return [_end(made), _stop(made), _kill(made)]


def _end(made: Material) -> Row:
    with serving(made.int8, made.photo) as server, ThreadPoolExecutor(IN_FLIGHT) as threads:
        answers = _ask(server, threads, made.photo)
        accepted = _wait_for_requests(server)
        start = time.perf_counter()
        server.kill(signal.SIGTERM)
        statuses = [answer.result()[0] for answer in answers]
        code = server.process.wait()
        seconds = time.perf_counter() - start
    answered, refused = statuses.count(200), statuses.count(503)
    is_met = code == 0 and answered + refused == IN_FLIGHT and answered >= accepted
    return Row(
        what=f"SIGTERM with {IN_FLIGHT} requests under way",
        ours=f"{answered} answered, {refused} told 503, {IN_FLIGHT - answered - refused} lost; "
        f"exit code {code} after {seconds:.2f} s",
        theirs="aim: all that were accepted are answered, exit code 0",
        verdict="met" if is_met else "missed",
        command=COMMAND,
        detail=f"{made.describe()}; int8; {accepted} were accepted before the signal",
    )


def _stop(made: Material) -> Row:
    with serving(made.int8, made.photo) as server, ThreadPoolExecutor(2 * IN_FLIGHT) as threads:
        answers = _ask(server, threads, made.photo)
        _wait_for_requests(server)
        server.kill(signal.SIGSTOP)
        answers += _ask(server, threads, made.photo)
        time.sleep(STOPPED)
        server.kill(signal.SIGCONT)
        start = time.perf_counter()
        statuses = [answer.result()[0] for answer in answers]
        seconds = time.perf_counter() - start
        is_alive = server.ask("/v1/detect", made.photo).status == 200
    told = Counter(statuses)
    is_met = set(told) <= {200, 429, 504} and seconds < DEADLINE + _MARGIN and is_alive
    return Row(
        what=f"SIGSTOP for {STOPPED:g} s, with {IN_FLIGHT} requests of {DEADLINE:g} s before and after",
        ours=f"answers by status {dict(sorted(told.items()))}, {told[0]} lost; "
        f"all of them {seconds:.2f} s after it went on",
        theirs="aim: nobody waits past the deadline, and it goes on",
        verdict="met" if is_met else "missed",
        command=COMMAND,
        detail="the service counts from when it can read a request; what waited in sockets is in time",
    )


def _kill(made: Material) -> Row:
    with serving(made.int8, made.photo) as server, ThreadPoolExecutor(IN_FLIGHT) as threads:
        answers = _ask(server, threads, made.photo)
        time.sleep(_SETTLE)
        server.kill(signal.SIGKILL)
        begun = time.perf_counter()
        statuses = [answer.result()[0] for answer in answers]
        seconds = time.perf_counter() - begun
    with serving(made.int8, made.photo) as server:
        start = server.start_seconds
    return Row(
        what=f"kill -9 of the only process with {IN_FLIGHT} requests under way",
        ours=f"{statuses.count(0)} connections closed and none left waiting after {seconds:.2f} s; "
        f"started again, it answers after {start:.2f} s",
        theirs="aim: nobody waits",
        verdict="met" if seconds < _MARGIN else "missed",
        command=COMMAND,
        detail="threads, not processes, compute the photos: there is no member of a pool to lose",
    )


def _ask(server: Server, threads: ThreadPoolExecutor, photo: bytes) -> list[Future[Timed]]:
    """Send the requests, each over a connection of its own."""
    return [threads.submit(_timed, lambda: _ask_once(server.port, photo)) for _ in range(IN_FLIGHT)]


def _ask_once(port: int, photo: bytes) -> Answer:
    with Connection(port) as connection:
        return connection.ask("/v1/detect", photo, headers={"X-Timeout": f"{DEADLINE:g}"})


def _timed(ask: Callable[[], Answer]) -> Timed:
    start = time.perf_counter()
    try:
        status = ask().status
    except ConnectionError:
        status = 0
    return status, time.perf_counter() - start


def _wait_for_requests(server: Server) -> int:
    """Return how many requests are accepted and not answered, as soon as there are some."""
    while True:
        lines = server.ask("/metrics").body.decode().splitlines()
        (num,) = (float(line.split()[1]) for line in lines if line.startswith("boxcrew_open_requests "))
        if num > 1:
            return int(num)
