"""Measurements of a task on this machine: trial steps before a run, and the ratios of earlier runs.

The ratios are stored in the user's cache, one file per machine, so that later predictions are better.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field

from boxcrew.core.cache import cache_folder, write_cached
from boxcrew.core.config import Config
from boxcrew.core.errors import UsageError
from boxcrew.core.units import counted
from boxcrew.hardware.machine import Machine
from boxcrew.hardware.speed import fingerprint
from boxcrew.plan.plan import MemoryFormat, Precision


class ComputeMode(Config, group="modes"):
    """The choices that decide how fast a device computes."""

    device: str
    memory_format: MemoryFormat
    threads: int = Field(ge=1)
    precision: Precision

    def __str__(self) -> str:
        return f"{self.memory_format} on {counted(self.threads, 'thread')}"


class Timing(ComputeMode, group="timings"):
    """Measured steps with one number of samples at once, on one device."""

    samples: int = Field(ge=1)
    seconds: float = Field(gt=0)  # of a step with its update
    core_seconds: float | None = Field(default=None, gt=0)  # of all threads together
    num_bytes: int | None = Field(default=None, gt=0)  # at the peak, without what was there before the model
    alone: bool = False  # measured in a trial, not in a run


class ObservedRatio(Config, group="ratios"):
    """The ratio measured / predicted of the last run with one compute mode."""

    device: str
    memory_format: MemoryFormat
    precision: Precision = "fp32"
    seconds: float = Field(gt=0)  # of forward, backward and update
    num_bytes: float = Field(gt=0)

    @property
    def mode(self) -> tuple[str, str, str]:
        return self.device, self.memory_format, self.precision


class Observed(Config, group="observed"):
    """Everything that was measured of one task on one machine."""

    timings: tuple[Timing, ...] = ()
    failures: tuple[str, ...] = ()  # trial settings that failed, and why
    oom_samples: int | None = Field(default=None, ge=1)  # samples at once that ran out of memory
    ratios: tuple[ObservedRatio, ...] = ()
    libraries: int | None = Field(default=None, ge=0)  # bytes of a process before it holds any of the model

    def on_device(self, device: str, precision: Precision) -> list[Timing]:
        """Return the timings on a device, the fewest samples first."""
        timings = [each for each in self.timings if (each.device, each.precision) == (device, precision)]
        return sorted(timings, key=lambda timing: timing.samples)

    def ratio(self, device: str, memory_format: MemoryFormat, precision: Precision) -> ObservedRatio | None:
        mode = (device, memory_format, precision)
        return next((ratio for ratio in self.ratios if ratio.mode == mode), None)


def load_ratios(machine: Machine, task: str, folder: Path | None = None) -> tuple[ObservedRatio, ...]:
    """Load a task's ratios from `folder`, by default in the user's cache; none if they cannot be read."""
    stored = _read(_file(machine, folder)).get(task, [])
    with suppress(UsageError):
        return tuple(ObservedRatio.of(tree) for tree in stored) if isinstance(stored, list) else ()
    return ()


def store_ratio(machine: Machine, task: str, ratio: ObservedRatio, folder: Path | None = None) -> None:
    """Store a ratio in place of the earlier one of the same compute mode. Errors of the disk are ignored."""
    file = _file(machine, folder)
    others = [earlier for earlier in load_ratios(machine, task, folder) if earlier.mode != ratio.mode]
    write_cached(file, _read(file) | {task: [each.tree() for each in (*others, ratio)]})


def _file(machine: Machine, folder: Path | None) -> Path | None:
    folder = folder or cache_folder("machine")
    return None if folder is None else folder / f"{fingerprint(machine)}-residuals.json"


def _read(file: Path | None) -> dict[str, Any]:
    try:
        stored = json.loads(file.read_text(encoding="utf-8")) if file is not None else {}
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}
