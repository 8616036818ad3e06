"""Photos a second over HTTP from another process, and how long they take when half as many come."""

from __future__ import annotations

from bench.row import Row, skipped
from bench.serving.load import Load, Seen, percentile, run_load
from bench.serving.material import Material, material
from bench.serving.server import MIB, Server, serving

COMMAND = "python -m bench serve_speed"
CLIENTS = 6
AIM_RATE, AIM_MILLISECONDS = 120, 60

_WARM_UP = 3.0  # seconds
_WHAT = "photos of one megapixel over HTTP, int8"


def rows(*, seconds: float = 20.0) -> list[Row]:
    made = material()
    if made is None:
        return [skipped(what=_WHAT, reason="no home to keep a model in", command=COMMAND)]
    with serving(made.int8, made.photo) as server:
        _load(server, made, seconds=_WARM_UP)
        start = server.cpu_seconds()
        full = _load(server, made, seconds=seconds)
        cpu = 1000 * (server.cpu_seconds() - start) / max(1, len(full.milliseconds))
        rate = len(full.milliseconds) / full.seconds
        half = _load(server, made, seconds=seconds, rate=rate / 2)
        memory = server.uss() / MIB
    usual, slowest = (percentile(half.milliseconds, share) for share in (0.5, 0.99))
    detail = (
        f"{made.describe()}; {CLIENTS} clients in another process on the same cores, for {seconds:g} s; "
        f"other answers: {_others(full.codes)} and {_others(half.codes)}"
    )
    return [
        Row(
            what=_WHAT,
            ours=f"{rate:.0f} photos/s, {cpu:.1f} ms of CPU each",
            theirs=f"aim: {AIM_RATE} photos/s",
            verdict="met" if rate >= AIM_RATE else "missed",
            command=COMMAND,
            detail=f"{detail}; {memory:.0f} MiB afterwards",
        ),
        Row(
            what="time of such a photo when half as many come",
            ours=f"p50 {usual:.0f} ms, p99 {slowest:.0f} ms at {rate / 2:.0f} photos/s",
            theirs=f"aim: p99 under {AIM_MILLISECONDS} ms",
            verdict="met" if slowest < AIM_MILLISECONDS else "missed",
            command=COMMAND,
            detail=f"{detail}; counted from when each was due",
        ),
    ]


def _load(server: Server, made: Material, *, seconds: float, rate: float = 0.0) -> Seen:
    photos = tuple(map(str, made.photos))
    return run_load(Load(port=server.port, photos=photos, clients=CLIENTS, seconds=seconds, rate=rate))


def _others(codes: dict[int, int]) -> int:
    return sum(num for code, num in codes.items() if code != 200)
