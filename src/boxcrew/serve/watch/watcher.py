"""All watched runs: those below the folders that the user named, as they come and go."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock as ThreadLock

from boxcrew.serve.watch.folders import RunEntry, find_runs
from boxcrew.serve.watch.reading import is_file
from boxcrew.serve.watch.run import WatchedRun
from boxcrew.serve.watch.state import Lock, StateName

_SCAN_SECONDS = 1.5  # between looking for new runs
_WHOLES = {"staged", "comparison"}  # kinds of runs that have parts

Tree = dict[str, object]


class Watcher:
    """Finds the runs again and again, and keeps what was read of those that are still there."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)
        self._runs: dict[str, WatchedRun] = {}
        self._scanned_at = -_SCAN_SECONDS
        self._mutex = ThreadLock()

    def runs(self) -> dict[str, WatchedRun]:
        """Return the runs by their keys."""
        with self._mutex:
            now = time.monotonic()
            if now - self._scanned_at >= _SCAN_SECONDS:
                self._scanned_at = now
                entries = find_runs(self._roots)
                self._runs = {entry.key: self._kept(entry) for entry in entries}
            return self._runs

    def _kept(self, entry: RunEntry) -> WatchedRun:
        run = self._runs.get(entry.key)
        if run is None or (run.entry.folder, run.entry.kind) != (entry.folder, entry.kind):
            return WatchedRun(entry)
        run.entry = entry  # a stage may have begun
        return run

    def overviews(self) -> list[Tree]:
        """Return a line about each run; those of wholes say what their parts do."""
        runs = self.runs()
        lines = {key: run.overview(self._lock(run, runs)) for key, run in runs.items()}
        for key, run in reversed(runs.items()):  # parts before the wholes
            if run.entry.kind in _WHOLES:
                parts = [line for line in lines.values() if line["parent"] == key]
                lines[key] |= _sum_up(run, lines[key], parts)
        return list(lines.values())

    def details(self, key: str) -> Tree | None:
        """Return all about a run but its curves; None if there is no such run."""
        runs = self.runs()
        run = runs.get(key)
        if run is None:
            return None
        details = run.details(self._lock(run, runs))
        if run.entry.kind not in _WHOLES:
            return details
        return details | next((line for line in self.overviews() if line["key"] == key), {})

    def _lock(self, run: WatchedRun, runs: dict[str, WatchedRun]) -> Lock:
        """Return the lock on a run; a stage is locked by the run that it is a part of."""
        parent = runs.get(run.entry.parent or "") if run.entry.kind == "stage" else None
        return Lock.on((parent or run).entry.folder)


def _sum_up(run: WatchedRun, line: Tree, parts: Sequence[Tree]) -> Tree:
    """Return what a whole does, from the states of its parts."""
    states = [part["state"] for part in parts]
    num_finished = states.count("finished")
    current = next((part for part in parts if part["state"] in {"running", "preparing"}), None)
    ended = [part for part in parts if part["state"] in {"failed", "killed", "interrupted"}]
    summed_up: Tree = {"parts": len(parts), "parts_finished": num_finished}
    if line["state"] in {"finished", "gone"}:
        return summed_up
    if run.entry.kind == "comparison" and is_file(run.entry.folder / "compare.json"):
        return {**summed_up, "state": "finished", "reason": None}
    name: StateName = "killed"
    if current is not None or line["state"] == "preparing":
        name = "running"
    elif line["state"] in {"failed", "interrupted"}:
        return summed_up
    elif ended:
        return {**summed_up, "state": ended[-1]["state"], "reason": ended[-1]["reason"]}
    elif run.entry.kind == "comparison" and num_finished == len(parts):
        name = "finished"
    shown = {} if current is None else {key: current[key] for key in ("step", "epoch", "host")}
    return {**summed_up, **shown, "state": name, "part": None if current is None else current["name"]}
