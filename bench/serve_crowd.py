"""Two hundred clients on two cores: some are answered in time, and the rest is told to come again."""

from __future__ import annotations

import threading
import time

from bench.row import Row, skipped
from bench.serving.load import Load, percentile, run_load
from bench.serving.material import Material, material
from bench.serving.server import MIB, Server, serving

COMMAND = "python -m bench serve_crowd"
CLIENTS, DEADLINE = 200, 5.0
AIM_HEALTH, AIM_MEMORY = 100.0, 0.05

_WHAT = f"{CLIENTS} clients at once, int8, photos of one megapixel"
_PAUSE = 0.25  # seconds until a client that was refused comes again, though it was asked to wait longer
_INTERVAL = 0.05  # seconds between two questions for health
_REST = 3.0  # seconds before memory is read


def rows(*, seconds: float = 60.0) -> list[Row]:
    made = material()
    if made is None:
        return [skipped(what=_WHAT, reason="no home to keep a model in", command=COMMAND)]
    with serving(made.int8, made.photo) as server:
        run_load(_load(server, made, seconds=min(seconds, 10.0)))
        time.sleep(_REST)
        before = server.uss()
        health = _Health(server)
        seen = run_load(_load(server, made, seconds=seconds))
        worst_health = health.end()
        time.sleep(_REST)
        after = server.uss()
    grown, worst = after / before - 1, max(seen.milliseconds, default=0.0)
    refused = {code: num for code, num in seen.codes.items() if code != 200}
    is_met = (
        set(refused) <= {429, 503}
        and seen.lost == 0
        and worst <= 1000 * DEADLINE
        and percentile(worst_health, 1.0) < AIM_HEALTH
        and grown <= AIM_MEMORY
    )
    return [
        Row(
            what=_WHAT,
            ours=f"{len(seen.milliseconds)} answered in {seconds:g} s, the slowest after "
            f"{worst / 1000:.1f} s; refused: {refused}; without an answer: {seen.lost}; health within "
            f"{percentile(worst_health, 1.0):.0f} ms; memory {100 * grown:+.1f} %",
            theirs=f"aim: only 429 and 503, answers within {DEADLINE:g} s, health under {AIM_HEALTH:g} ms, "
            f"memory within {100 * AIM_MEMORY:g} %",
            verdict="met" if is_met else "missed",
            command=COMMAND,
            detail=f"{made.describe()}; the clients are another process on the same cores and come again "
            f"{_PAUSE:g} s after they were refused; health: {len(worst_health)} questions, median "
            f"{percentile(worst_health, 0.5):.1f} ms; {before / MIB:.0f} MiB before",
        )
    ]


def _load(server: Server, made: Material, *, seconds: float) -> Load:
    photos = tuple(map(str, made.photos))
    return Load(
        port=server.port, photos=photos, clients=CLIENTS, seconds=seconds, deadline=DEADLINE, pause=_PAUSE
    )


class _Health:
    """A thread that asks for health again and again, each time over a connection of its own."""

    def __init__(self, server: Server) -> None:
        self._server, self._milliseconds = server, list[float]()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> list[float]:
        """Return how long each answer took; endless if one was not that the service lives."""
        self._ends.set()
        self._thread.join()
        return self._milliseconds

    def _run(self) -> None:
        while not self._ends.wait(_INTERVAL):
            start = time.perf_counter()
            status = self._server.ask("/v2/health/live").status
            taken = 1000 * (time.perf_counter() - start)
            self._milliseconds.append(taken if status == 200 else float("inf"))
