"""Many requests, with the same photos again and again: the same answers to the bit, and no more memory."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from bench.row import Row, skipped
from bench.serving.load import Load, run_load
from bench.serving.material import Material, material
from bench.serving.server import MIB, Server, serving

COMMAND = "python -m bench serve_soak"
EVERY = 1000
AIM_GROWTH = 0.01  # of the memory, over the whole soak

_CLIENTS = 4
_LIMIT = 600.0  # seconds for so many requests
_SETTLED = 0.2  # of the soak, after which memory is read


def rows(*, requests: int = 20_000) -> list[Row]:
    what = "answers and memory over many requests"
    made = material()
    if made is None:
        return [skipped(what=what, reason="no home to keep a model in", command=COMMAND)]
    rounds = max(5, requests // EVERY)
    with serving(made.int8, made.photo) as server:
        golden = _answers(server, made)
        memory, others, differing, seconds = [], 0, 0, 0.0
        for _ in range(rounds):
            seen = run_load(_load(server, made))
            others += seen.lost + sum(num for code, num in seen.codes.items() if code != 200)
            seconds += seen.seconds
            differing += sum(a != b for a, b in zip(_answers(server, made), golden, strict=True))
            memory.append(server.uss())
        files = server.num_files()
    settled = memory[int(_SETTLED * rounds) :]
    slope = float(np.polyfit(np.arange(len(settled)), settled, 1)[0])  # bytes for EVERY requests
    growth = slope * len(settled) / settled[0]
    is_met = not differing and not others and growth < AIM_GROWTH
    return [
        Row(
            what=f"{rounds * EVERY:,} photos of 320 x 240, and {len(golden)} golden ones every {EVERY:,}",
            ours=f"{differing} golden answers differ in a bit; memory {slope / 1024:+.1f} KiB for {EVERY:,} "
            f"photos, {100 * growth:+.2f} % in all",
            theirs=f"aim: 0, below {100 * AIM_GROWTH:g} %",
            verdict="met" if is_met else "missed",
            command=COMMAND,
            detail=f"int8, {_CLIENTS} clients, {seconds:.0f} s; {others} answers but 200; "
            f"{settled[0] / MIB:.0f} to {settled[-1] / MIB:.0f} MiB; {files} open files at the end",
        )
    ]


def _load(server: Server, made: Material) -> Load:
    photos = tuple(map(str, made.small))
    return Load(port=server.port, photos=photos, clients=_CLIENTS, seconds=_LIMIT, num=EVERY)


def _answers(server: Server, made: Material) -> list[Any]:
    """Return the detections in the golden photos, with all the scores there are."""
    answers = [server.ask("/v1/detect?score=0.01", path.read_bytes()) for path in (*made.photos, *made.small)]
    return [json.loads(answer.body)["results"][0]["detections"] for answer in answers]
