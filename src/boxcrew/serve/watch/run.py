"""One run as the page shows it, read from its files, which change while it is watched."""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path
from threading import Lock as ThreadLock

from boxcrew.core.errors import BoxcrewError
from boxcrew.hardware.machine import Machine
from boxcrew.serve.watch.curves import Cursor, RunCurves
from boxcrew.serve.watch.folders import RunEntry, readable
from boxcrew.serve.watch.log import Log
from boxcrew.serve.watch.pictures import list_pictures, read_picture
from boxcrew.serve.watch.plan_rows import plan_rows, read_plan
from boxcrew.serve.watch.reading import JsonFile, JsonRecord, is_folder, opened
from boxcrew.serve.watch.state import STATUS, SUMMARY, Lock, State, state_of

METRICS = {"AP": True, "accuracy": True, "perplexity": False, "frechet": False, "val_loss": False}
"""The metrics that say how good a run is, the first that it has; and whether higher is better."""
_LOWER_IS_BETTER = {"perplexity", "frechet", "val_loss", "ECE", "bits"}
_MAX_SETTINGS = 64 << 10  # bytes
_METRIC = re.compile(r"^evaluation:\n(?: .*\n)*?  metric: (\w{1,60})$", re.MULTILINE)  # as it is written
_LIVE = {"running", "preparing"}


class WatchedRun:
    """A run, or a stage of one. It is read by several threads, one at a time."""

    def __init__(self, entry: RunEntry) -> None:
        folder = entry.folder
        self.entry = entry
        self._status, self._summary = JsonFile(folder / STATUS), JsonFile(folder / SUMMARY)
        self._plan, self._data = JsonFile(folder / "plan.json"), JsonFile(folder / "data_report.json")
        self._hardware = JsonFile(folder / "hardware.json")
        self._curves, self._log = RunCurves(folder / "metrics.jsonl"), Log(folder / "train.log")
        self._settings = _Settings(folder / "config.yaml")
        self._mutex = ThreadLock()

    def state(self, lock: Lock) -> State:
        """Return what the run is doing. `lock` is its own, or that of the run whose stage it is."""
        if not is_folder(self.entry.folder):
            return State(name="waiting" if self.entry.kind == "stage" else "gone")
        if self.entry.stage in {"waiting", "finished"}:
            return State(name="waiting" if self.entry.stage == "waiting" else "finished")
        status, summary = self._status.read(), self._summary.read()
        written = _modified(self._status.path)
        if self.entry.stage_kind == "solve" and not summary:
            return State(name="running" if lock.is_held else "killed")
        return state_of(status, summary, lock, status_seconds=written)

    def overview(self, lock: Lock) -> dict[str, object]:
        """Return a line about the run for the list of all runs."""
        with self._mutex:
            state = self.state(lock)
            status, summary = self._status.read(), self._summary.read()
            if state.name in _LIVE or not summary:
                self._curves.update()
            fraction, seconds = status.number("fraction"), status.number("train_seconds")
            remaining = None
            if state.name == "running" and seconds and fraction and 0 < fraction <= 1:
                remaining = seconds * (1 - fraction) / fraction
            entry = self.entry
            return {
                "key": entry.key,
                "name": entry.name,
                "folder": readable(str(entry.folder)),
                "parent": entry.parent,
                "kind": entry.kind,
                "state": state.name,
                "reason": state.reason,
                "task": self._plan.read().text("task", limit=100),
                "step": status.number("step"),
                "epoch": status.number("epoch"),
                "fraction": fraction,
                "seconds": seconds if seconds is not None else summary.number("train_seconds"),
                "remaining": remaining,
                "score": self._score(),
                "host": lock.host if state.name in _LIVE and lock.host != socket.gethostname() else None,
                **self._age(),
            }

    def details(self, lock: Lock) -> dict[str, object]:
        """Return all about the run but its curves."""
        overview = self.overview(lock)
        with self._mutex:
            self._curves.update()
            self._log.update()
            status, summary, data = self._status.read(), self._summary.read(), self._data.read()
            # That of a run with stages is a copy of its last stage's.
            plan = None if self.entry.kind == "staged" else read_plan(self._plan.read())
            advice = summary.records("advice", limit=30) or data.records("advice", limit=30)
            return overview | {
                "plan": [] if plan is None else [line[:500] for line in plan.explain()[:30]],
                "rejected": [] if plan is None else [line[:500] for line in plan.rejected[:30]],
                "plan_rows": [] if plan is None else plan_rows(plan, self._curves.training, status, summary),
                "comparison": self._log.comparison,
                "machine": self._machine(),
                "advice": [_advice(item) for item in advice],
                "notices": self._log.notices,
                "log": list(self._log.last),
                "data": _data(data),
                "scores": summary.numbers(),
                "milliseconds": summary.numbers("milliseconds"),
                "pictures": [picture.tree() for picture in list_pictures(self._pictures)],
                "settings": self._settings.text(),
                "damaged": self._damaged(),
            }

    def curves(self, training: Cursor, evaluations: Cursor) -> dict[str, object]:
        """Return the numbers that a reader with these cursors lacks."""
        with self._mutex:
            self._curves.update()
            return {
                "training": self._curves.training.after(training),
                "evaluations": self._curves.evaluations.after(evaluations),
                "is_behind": self._curves.is_behind,
            }

    def picture(self, name: str) -> tuple[bytes, str] | None:
        return read_picture(self._pictures, name)

    @property
    def _pictures(self) -> Path:
        """The folder of its pictures."""
        folder = self.entry.folder
        return folder if self.entry.kind == "comparison" else folder / "plots"

    def _score(self) -> dict[str, object] | None:
        """Return the best value of the metric that says how good the run is."""
        evaluations, summary = self._curves.evaluations, self._summary.read()
        last = evaluations.last
        names = (self._settings.metric(), *METRICS)
        name = next((name for name in names if name in last or summary.number(name) is not None), None)
        if name is None:
            return None
        higher = METRICS.get(name, name not in _LOWER_IS_BETTER)
        best = evaluations.best(name, higher=higher)
        value, step = best or (summary.number(name), summary.number("best_step"))
        return {"name": name, "value": value, "step": step, "higher": higher}

    def _age(self) -> dict[str, object]:
        """Return when the run last wrote anything, since the epoch, and how many seconds ago that is by the
        clock of this machine: that of the browser may differ.
        """
        folder = self.entry.folder
        written = [_modified(folder / name) for name in (STATUS, SUMMARY, "metrics.jsonl", "train.log")]
        newest = max((seconds for seconds in written if seconds is not None), default=None)
        return {"updated": newest, "silent": None if newest is None else max(0.0, time.time() - newest)}

    def _machine(self) -> str | None:
        record = self._hardware.read()
        try:
            return Machine.of(record.value()).headline()[:300] if record else None
        except BoxcrewError:
            return None

    def _damaged(self) -> list[str]:
        files = (self._status, self._summary, self._plan, self._data, self._hardware)
        lines = [f"metrics.jsonl ({self._curves.num_damaged})"] if self._curves.num_damaged else []
        return [file.path.name for file in files if file.is_damaged] + lines


class _Settings:
    """The settings of a run, as its `config.yaml` has them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def text(self) -> str:
        with opened(self._path) as file:
            return "" if file is None else file.read(_MAX_SETTINGS).decode(errors="replace")

    def metric(self) -> str:
        """Return the metric that the user has chosen; empty if the task's own decides."""
        match = _METRIC.search(self.text())
        return "" if match is None or match[1] == "auto" else match[1]


def _advice(item: JsonRecord) -> dict[str, object]:
    return {name: item.text(name) for name in ("cause", "finding", "remedy")}


def _data(report: JsonRecord) -> dict[str, object]:
    """Return what the data of a run is, in short."""
    classes = report.value("classes")
    splits = {
        str(name)[:50]: sizes[0]
        for name in ("train", "val", "test")
        if (sizes := list(report.numbers("splits", name).values()))
    }
    return {
        "root": report.text("root"),
        "format": report.text("format"),
        "classes": len(classes) if isinstance(classes, list) else None,
        "splits": splits,
    }


def _modified(path: Path) -> float | None:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return None
