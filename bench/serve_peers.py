"""The cost of a photo over HTTP: ours, LitServe with the same file, and FastAPI with torch.

All get the same photos in the same forms, on the same two cores. Times are those of the processors, of all
processes of a service: other work on the machine changes them little.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.peers import is_installed, missing
from bench.ports import free_port
from bench.row import Row, alternate_figures, skipped
from bench.serving.load import Load, run_load
from bench.serving.material import Material, material
from bench.serving.server import MIB, Server, peer_command, running, serving

COMMAND = "python -m bench serve_peers"
PEER = "litserve"
CLIENTS, WARM_UP, REQUESTS = 4, 40, 400
TYPE = "multipart/form-data; boundary=cut"
Figures = Mapping[str, float]

_LIMIT = 120.0  # seconds of a load, at most


@dataclass(frozen=True, kw_only=True)
class _Forms:
    """The photos as forms: a file for each, and the first."""

    files: tuple[str, ...]

    @property
    def first(self) -> bytes:
        return Path(self.files[0]).read_bytes()


def rows(*, repeats: int = 2) -> list[Row]:
    made = material()
    if made is None:
        return [
            skipped(
                what="CPU time of a photo over HTTP", reason="no home to keep a model in", command=COMMAND
            )
        ]
    with tempfile.TemporaryDirectory() as folder:
        forms = _write_forms(made, Path(folder))
        sides = {
            "int8": partial(_measure_ours, made.int8, forms),
            "fp32": partial(_measure_ours, made.fp32, forms),
        }
        if is_installed(PEER):
            sides["litserve"] = partial(_measure_peer, "litserve_server", made.int8, forms)
            sides["eager"] = partial(_measure_peer, "eager_server", made.run, forms)
        figures = dict(zip(sides, alternate_figures(list(sides.values()), repeats=repeats), strict=True))
    detail = (
        f"{made.describe()}; {REQUESTS} photos after {WARM_UP}; medians of {repeats} services, taking turns"
    )
    result = _own_rows(figures, detail)
    if not is_installed(PEER):
        return [*result, skipped(what="against LitServe and torch", reason=missing(PEER), command=COMMAND)]
    return [*_peer_rows(figures, detail), *result]


def _write_forms(made: Material, folder: Path) -> _Forms:
    files = []
    for path in made.photos:
        head = b'--cut\r\nContent-Disposition: form-data; name="photo"; filename="a.jpg"\r\n\r\n'
        file = folder / path.name
        file.write_bytes(head + path.read_bytes() + b"\r\n--cut--\r\n")
        files.append(str(file))
    return _Forms(files=tuple(files))


def _measure_ours(model: Path, forms: _Forms) -> Figures:
    with serving(model, forms.first, content_type=TYPE) as server:
        return _measure(server, "/v1/detect", forms)


def _measure_peer(script: str, model: Path, forms: _Forms) -> Figures:
    port = free_port()
    command = peer_command(PEER, script, str(model), str(port))
    with running(command, port, path="/predict", photo=forms.first, content_type=TYPE) as server:
        return _measure(server, "/predict", forms)


def _measure(server: Server, path: str, forms: _Forms) -> Figures:
    """Return what so many photos cost a service that runs."""
    load = partial(
        Load,
        port=server.port,
        photos=forms.files,
        clients=CLIENTS,
        seconds=_LIMIT,
        path=path,
        content_type=TYPE,
    )
    run_load(load(num=WARM_UP))
    start = server.cpu_seconds()
    seen = run_load(load(num=REQUESTS))
    if set(seen.codes) != {200} or seen.lost:
        raise RuntimeError(f"{path}: answers {seen.codes}, {seen.lost} lost")
    return {
        "cpu_ms": 1000 * (server.cpu_seconds() - start) / REQUESTS,
        "start": server.start_seconds,
        "rate": REQUESTS / seen.seconds,
        "mib": server.uss() / MIB,
        "processes": server.num_processes(),
    }


def _peer_rows(figures: Mapping[str, Figures], detail: str) -> list[Row]:
    rows = []
    for peer, ours, name, aim in (
        ("litserve", "int8", "LitServe 0.2.19 with the same file", 1.15),
        ("eager", "fp32", "FastAPI with torch", 3.0),
    ):
        ratio = figures[peer]["cpu_ms"] / figures[ours]["cpu_ms"]
        rows.append(
            Row(
                what=f"CPU time of a photo of one megapixel over HTTP, {ours}, against {name}",
                ours=_describe(figures[ours]),
                theirs=_describe(figures[peer]),
                verdict=f"{ratio:.2f} x (aim: {aim:g} x)",
                command=COMMAND,
                detail=detail,
            )
        )
    return rows


def _own_rows(figures: Mapping[str, Figures], detail: str) -> list[Row]:
    start, memory = (max(figures[side][name] for side in ("int8", "fp32")) for name in ("start", "mib"))
    return [
        Row(
            what="from the start of `boxcrew serve` to its first answer",
            ours=f"{start:.2f} s",
            theirs="aim: under 1 s",
            verdict="met" if start < 1 else "missed",
            command=COMMAND,
            detail=f"{detail}; the worse of int8 and fp32",
        ),
        Row(
            what="memory of `boxcrew serve` that is its own (USS)",
            ours=f"int8 {figures['int8']['mib']:.0f} MiB, fp32 {figures['fp32']['mib']:.0f} MiB",
            theirs="aim: under 120 MiB",
            verdict="met" if memory < 120 else "missed",
            command=COMMAND,
            detail=detail,
        ),
    ]


def _describe(figures: Figures) -> str:
    return (
        f"{figures['cpu_ms']:.1f} ms, {figures['rate']:.0f} photos/s, {figures['mib']:.0f} MiB in "
        f"{figures['processes']:.0f} processes, first answer after {figures['start']:.1f} s"
    )
