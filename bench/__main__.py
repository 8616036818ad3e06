"""`make bench`: measures, and writes docs/benchmarks.md and bench/results.json; `ARGS=start_up` runs one."""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench.machine import commit, machine_line

BENCHES = ("start_up", "scan", "train_step", "saver", "starter", "overfit")
RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"

INTRODUCTION = """# Benchmarks

Written by `make bench`. Speeds are ratios of runs that took turns on one machine.
"""


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"error: {unknown[0]}: no such benchmark; there are: {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    for name in names or BENCHES:
        found = importlib.import_module(f"bench.{name}").rows()
        stamp = {"machine": machine_line(), "commit": commit(), "date": time.strftime("%Y-%m-%d")}
        results[name] = [row.to_json() | stamp for row in found]
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")
        PAGE.write_text(page(results))
        for row in found:
            print(f"{row.what}: {row.ours}; {row.theirs}: {row.verdict}")
    return 0


def page(results: dict[str, Any]) -> str:
    lines = [INTRODUCTION, "| what | ours | peer or aim | verdict |", "|---|---|---|---|"]
    rows = [row for name in BENCHES for row in results.get(name, [])]
    lines += [f"| {r['what']} | {r['ours']} | {r['theirs']} | {r['verdict']} |" for r in rows]
    lines += ["", "How each was measured:", ""]
    lines += [
        f"- {r['what']}: `{r['command']}`; {r['detail']}; {r['machine']}; commit {r['commit']}, {r['date']}."
        for r in rows
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
