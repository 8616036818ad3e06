"""The run directory: its name, the lock on it, and the records in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from boxcrew.core.errors import ModelError, UsageError
from boxcrew.core.lock_owner import LOCK_FILES
from boxcrew.train.loop.checkpoint import list_checkpoints
from boxcrew.train.run.lock import locked

RUNS = Path("runs")
STAGES = "stages.json"
JOB = "job.json"


def choose_folder(out: Path | None, default: Path) -> Path:
    """Return `out`, or the first free name of runs/<default>, <default>-2, …; nothing is created."""
    if out is not None:
        _refuse_foreign(out)
        return out
    return next(folder for folder in candidate_folders(default) if not folder.exists())


def reserve_folder(out: Path | None, default: Path) -> Path:
    """Create the chosen folder, for processes that will train in it, and return its absolute path."""
    while True:
        folder = choose_folder(out, default).absolute()
        try:
            folder.mkdir(parents=True, exist_ok=out is not None)
        except FileExistsError:  # another has created it just now
            continue
        except OSError as error:
            raise UsageError(f"out={folder}: cannot be written to: {error.strerror}") from None
        return folder


@contextmanager
def locked_folder(out: Path | None, default: Path, info: Callable[[str], None]) -> Iterator[Path]:
    """Create and lock the chosen folder. Runs that start at the same time get different names."""
    with ExitStack() as stack:
        if out is not None:
            folder = choose_folder(out, default)
            stack.enter_context(locked(folder, info))
        else:
            folder = _claim(stack, default, info)
        yield folder


def _claim(stack: ExitStack, default: Path, info: Callable[[str], None]) -> Path:
    """Create and lock the first free folder. Only one process can create a directory."""
    for folder in candidate_folders(default):
        if not folder.exists():
            with suppress(FileExistsError):
                stack.enter_context(locked(folder, info, new=True))
                return folder
    raise AssertionError  # names do not end


def candidate_folders(default: Path) -> Iterator[Path]:
    """Yield runs/<default>, <default>-2, … without end."""
    first = RUNS / default
    yield first
    for number in count(2):
        yield first.with_name(f"{first.name}-{number}")


def _refuse_foreign(folder: Path) -> None:
    """Raise `UsageError` for a folder with anything in it that is not a run, so that no user's file is
    overwritten.
    """
    if folder.is_file():
        raise UsageError(f"out={folder}: is a file", advice="give a directory that does not exist yet")
    if (
        folder.is_dir()
        and not is_run(folder)
        and any(p.name not in {*LOCK_FILES, JOB} for p in folder.iterdir())
    ):
        raise UsageError(
            f"out={folder}: not empty, and not a run", advice="give a directory that does not exist yet"
        )


def is_run(folder: Path) -> bool:
    """Return whether there is a checkpoint; or a plan or a list of stages beside the config.yaml, a name that
    many files have.
    """
    has_plan = any((folder / name).is_file() for name in ("plan.json", STAGES))
    is_begun = (folder / "config.yaml").is_file() and has_plan
    return is_begun or bool(list_checkpoints(folder / "checkpoints"))


def stage_names(folder: Path) -> list[str]:
    """Return the names of the directories of a run's stages; empty if it has none."""
    return [stage["folder"] for stage in stages_record(folder)["stages"]]


def stages_record(folder: Path) -> dict[str, Any]:
    """Return the list of a run's `stages` and the `config` that it was made with; without stages if the run
    has none. Raise `ModelError` if the file is damaged.
    """
    if not (folder / STAGES).is_file():
        return {"stages": []}
    try:
        record = read_record(folder, STAGES)
        names = [stage["folder"] for stage in record["stages"]]
        if names and isinstance(record["config"], dict):
            return record
    except (ValueError, KeyError, TypeError):
        pass
    raise ModelError(f"{folder / STAGES}: damaged", advice="start a new run with another out=")


def run_of_stage(folder: Path) -> Path | None:
    """Return the run that a directory is a stage of; None if it is not a stage."""
    parent = folder.resolve().parent
    return parent if folder.resolve().name in stage_names(parent) else None


def require_run(folder: Path) -> Path:
    """Return the folder; raise `UsageError` if it is not a run directory."""
    if not is_run(folder):
        raise UsageError(
            f"run={folder}: not a run directory: it has no config.yaml with a plan.json",
            advice="give the directory that 'boxcrew train' named at its end, such as runs/detect/train",
        )
    return folder


def read_record(folder: Path, name: str) -> dict[str, Any]:
    """Return a JSON file of a run; empty if it is not there. Raise `ValueError` if it is damaged."""
    path = folder / name
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return record
