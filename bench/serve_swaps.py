"""A thousand swaps of the model while photos are asked for."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from bench.row import Row, skipped
from bench.serving.client import Connection
from bench.serving.load import Load, percentile, start_load
from bench.serving.material import Material, material
from bench.serving.server import MIB, Server, serving

COMMAND = "python -m bench serve_swaps"

_CLIENTS = 3
_LIMIT = 600.0  # seconds of the load, at most: it ends with the swaps
_TAIL = 0.5  # seconds of load after the last swap


def rows(*, swaps: int = 1000) -> list[Row]:
    what = f"{swaps:,} swaps of the model under load"
    made = material()
    if made is None:
        return [skipped(what=what, reason="no home to keep a model in", command=COMMAND)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        shutil.copyfile(made.int8, file)
        with serving(file, made.photo) as server:
            return [_swap_under_load(server, made, file, swaps)]


def _swap_under_load(server: Server, made: Material, file: Path, swaps: int) -> Row:
    photos = tuple(map(str, made.small))
    stop = file.with_name("stop")
    load = Load(port=server.port, photos=photos, clients=_CLIENTS, seconds=_LIMIT, until=str(stop))
    running = start_load(load)
    milliseconds, refused = [], 0
    before = 0
    with Connection(server.port) as connection:
        for number in range(swaps):
            start = time.perf_counter()
            newer = file.with_name("newer.onnx")
            shutil.copyfile(made.int8 if number % 2 else made.fp32, newer)
            newer.replace(file)
            refused += connection.ask("/v1/models/model/reload", b"", method="POST").status != 200
            milliseconds.append(1000 * (time.perf_counter() - start))
            if number == swaps // 5:
                before = server.uss()
    time.sleep(_TAIL)
    stop.touch()
    seen = running.seen()
    grown = server.uss() / before - 1
    failed = seen.lost + sum(num for code, num in seen.codes.items() if code != 200)
    is_met = failed == refused == 0 and len(seen.versions) == 2
    return Row(
        what=f"{swaps:,} swaps of the model under load",
        ours=f"{failed} of {failed + len(seen.milliseconds):,} requests failed, {refused} swaps did",
        theirs="aim: 0",
        verdict="met" if is_met else "missed",
        command=COMMAND,
        detail=f"fp32 and int8 in turn, each tried before it is served; {_CLIENTS} clients with photos of "
        f"320 x 240; answers by version: {list(seen.versions.values())}; a swap took "
        f"{percentile(milliseconds, 0.5):.0f} ms, the slowest answer {max(seen.milliseconds):.0f} ms; "
        f"memory {100 * grown:+.1f} % from the first fifth on, {before / MIB:.0f} MiB",
    )
