"""`make bench`: measures, and writes docs/benchmarks.md and bench/results.json; `ARGS=start_up` runs one.

`ARGS=serve` runs all of the service, `ARGS=elastic` all of several hosts. `ARGS="start_up --no-write"` only
prints: for a machine that has other work to do. Settings of a benchmark are given as `repeats=1`;
`ARGS="accuracy SET CONTESTANT time=15m"` measures one contestant on one set.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench.curves import PLOT
from bench.machine import commit, machine_line
from bench.row import Row
from boxcrew.core.errors import UsageError
from boxcrew.core.units import parse_duration

BENCHES = (
    "start_up",
    "scan",
    "pipeline",
    "train_step",
    "allocator",
    "deployment",
    "planner",
    "planner_detectors",
    "plan_choice",
    "gpu_tables",
    "predict",
    "export",
    "average_precision",
    "data_wait",
    "memory",
    "saver",
    "resume",
    "starter",
    "overfit",
    "recipes",
    "loops",
    "networks",
    "seeds",
    "proposals",
    "six_detectors",
    "serve_speed",
    "serve_peers",
    "serve_crowd",
    "serve_hostile",
    "serve_swaps",
    "serve_signals",
    "serve_soak",
    "tune",
    "tune_kills",
    "elastic_data",
    "elastic_links",
    "elastic_kills",
    "accuracy",
)
GROUPS = {
    group: tuple(name for name in BENCHES if name.startswith(f"{group}_")) for group in ("serve", "elastic")
}
"""Names that stand for several benchmarks."""
TAKES_WORDS = "accuracy"  # the words after its name are its own arguments
RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"

_NO_WRITE = "--no-write"

INTRODUCTION = """# Benchmarks

Written by `make bench`. Speeds are ratios of runs that took turns on one machine.
"""


def main(words: list[str]) -> int:
    write = _NO_WRITE not in words
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    try:
        names, arguments, settings = parse_arguments([word for word in words if word != _NO_WRITE])
        for name in names:
            rows = _measure(name, arguments, settings, write=write)
            stamp = {"machine": machine_line(), "commit": commit(), "date": time.strftime("%Y-%m-%d")}
            results[name] = [row.to_json() | stamp for row in rows]
            if write:
                RESULTS.write_text(json.dumps(results, indent=2) + "\n")
                PAGE.write_text(page(results))
            for row in rows:
                print(f"{row.what}: {row.ours}; {row.theirs}: {row.verdict} ({row.detail})")
    except UsageError as error:
        print(f"error: {error.message}; {error.advice}", file=sys.stderr)
        return 2
    return 0


def parse_arguments(words: list[str]) -> tuple[list[str], list[str], dict[str, str]]:
    """Return the names of benchmarks, the arguments of the one that takes some, and settings."""
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    plain = [name for word in words if "=" not in word for name in GROUPS.get(word, (word,))]
    if plain[:1] == [TAKES_WORDS]:
        return plain[:1], plain[1:], settings
    for name in plain:
        if name not in BENCHES:
            raise UsageError(f"{name}: no such benchmark", advice=f"there are: {', '.join(BENCHES)}")
    return plain or list(BENCHES), [], settings


def _measure(name: str, arguments: list[str], settings: dict[str, str], *, write: bool) -> list[Row]:
    """Run a benchmark. Its settings are parameters of its `rows`; those with a float default are durations.

    A benchmark that stores files has a parameter `write`.
    """
    rows = importlib.import_module(f"bench.{name}").rows
    known = inspect.signature(rows).parameters
    values: dict[str, Any] = {"write": write} if "write" in known else {}
    for key, text in settings.items():
        if key not in known:
            raise UsageError(
                f"{name}: {key}: no such setting", advice=f"it has: {', '.join(known) or 'none'}"
            )
        values[key] = parse_duration(text) if isinstance(known[key].default, float) else int(text)
    measured: list[Row] = rows(*arguments, **values)
    return measured


def page(results: dict[str, Any]) -> str:
    lines = [INTRODUCTION, "| what | ours | peer or aim | verdict |", "|---|---|---|---|"]
    rows = [row for name in BENCHES for row in results.get(name, [])]
    lines += [f"| {r['what']} | {r['ours']} | {r['theirs']} | {r['verdict']} |" for r in rows]
    if PLOT.is_file():
        lines += ["", f"![AP50 against minutes of training]({PLOT.relative_to(PAGE.parent).as_posix()})"]
    lines += ["", "How each was measured:", ""]
    lines += [
        f"- {r['what']}: `{r['command']}`; {r['detail']}; {r['machine']}; commit {r['commit']}, {r['date']}."
        for r in rows
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
