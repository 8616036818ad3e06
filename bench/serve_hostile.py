"""Ten thousand hostile requests, and those that Schemathesis makes from the description of the service."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.peers import is_installed, missing
from bench.row import Row, skipped
from bench.serving.hostile import Attack, Attacker, Outcome, send
from bench.serving.material import Material, material
from bench.serving.server import MIB, Server, serving

COMMAND = "python -m bench serve_hostile"
PEER, SEED = "schemathesis", 1

_CLIENTS = 8
_BATCH = 250  # attacks between two photos that have to be answered
_WARM_UP = 2000  # attacks before the first look at memory: decoders are loaded when they are needed
_REST = 2.0  # seconds before memory is read
_UNDESCRIBED = "positive_data_acceptance"


def rows(*, requests: int = 10_000, schemathesis: float = 60.0) -> list[Row]:
    what = "hostile requests"
    made = material()
    if made is None:
        return [skipped(what=what, reason="no home to keep a model in", command=COMMAND)]
    with serving(made.int8, made.photo) as server:
        row = _attack(server, made, requests)
    if not is_installed(PEER):
        reason = missing(PEER)
        return [row, skipped(what="requests by Schemathesis", reason=reason, command=COMMAND)]
    with serving(made.int8, made.photo) as server:
        return [row, _examine(server, made, schemathesis)]


def _attack(server: Server, made: Material, num: int) -> Row:
    attacker = Attacker(SEED)
    _send(server, [attacker.attack() for _ in range(_WARM_UP)])
    time.sleep(_REST)
    before, begun = server.uss(), time.perf_counter()
    codes: Counter[int | None] = Counter()
    faults, unanswered, worst = list[Outcome](), 0, 0.0
    for start in range(0, num, _BATCH):
        batch = [attacker.attack() for _ in range(min(_BATCH, num - start))]
        for outcome, seconds in _send(server, batch):
            codes[outcome.status] += 1
            worst = max(worst, seconds)
            faults += [outcome] if outcome.is_fault else []
        unanswered += server.ask("/v1/detect", made.photo).status != 200
    taken = time.perf_counter() - begun
    time.sleep(_REST)
    grown = server.uss() / before - 1
    failures = server.log().count('"event": "failure"')
    for outcome in faults[:5]:
        print(f"fault: {outcome.status} {outcome.attack.kind}: {outcome.attack.content[:200]!r}")
    is_met = not faults and not unanswered and not failures and grown <= 0.05
    return Row(
        what=f"{num:,} hostile requests of {_CLIENTS} clients",
        ours=f"{len(faults)} crashes, hangs or 5xx but 501, 503 and 504; {failures} failures in the log; "
        f"the slowest answer after {worst:.1f} s; memory {100 * grown:+.1f} %",
        theirs="aim: 0, memory within 5 %",
        verdict="met" if is_met else "missed",
        command=COMMAND,
        detail=f"seed {SEED}, {taken:.0f} s; answers: {_describe(codes)}; photos between "
        f"them: {unanswered} not answered; {before / MIB:.0f} MiB before",
    )


def _send(server: Server, attacks: list[Attack]) -> list[tuple[Outcome, float]]:
    """Return what came of attacks, and the seconds that each took."""

    def timed(attack: Attack) -> tuple[Outcome, float]:
        start = time.perf_counter()
        return send(server.port, attack), time.perf_counter() - start

    with ThreadPoolExecutor(_CLIENTS) as threads:
        return list(threads.map(timed, attacks))


def _describe(codes: Counter[int | None]) -> str:
    names = {0: "closed", None: "nothing"}
    return ", ".join(f"{num} {names.get(code, code)}" for code, num in codes.most_common())


def _examine(server: Server, made: Material, seconds: float) -> Row:
    """Run Schemathesis over the description that the service gives of itself."""
    program = Path(__file__).parents[1] / ".peers" / PEER / "bin" / "schemathesis"
    command = [str(program), "run", f"http://127.0.0.1:{server.port}/openapi.json", "--no-color"]
    command += ["--checks=all", f"--exclude-checks={_UNDESCRIBED}", "--continue-on-failure"]
    command += [f"--max-time={seconds:.0f}", f"--seed={SEED}"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        print(done.stdout[-8000:], done.stderr[-2000:], sep="\n", file=sys.stderr)
    cases = re.search(r"([\d,]+) generated", done.stdout)
    failures = re.search(r"([\d,]+) unique failure", done.stdout)
    is_alive = server.ask("/v1/detect", made.photo).status == 200
    return Row(
        what="requests that Schemathesis makes from `/openapi.json`",
        ours=f"{failures[1] if failures else 0} failures in {cases[1] if cases else 0} requests",
        theirs="aim: 0",
        verdict="met" if done.returncode == 0 and is_alive and cases else "missed",
        command=COMMAND,
        detail=f"Schemathesis 4.32.5 with all checks but `{_UNDESCRIBED}` (no schema can say "
        f"which bytes are a photo), {seconds:.0f} s, seed {SEED}",
    )
