"""The command `boxcrew doctor`: an HTML page about a detection data set."""

from __future__ import annotations

import errno
import os
import shlex
from contextlib import suppress
from pathlib import Path

from boxcrew.api import run_config
from boxcrew.cli.data import holds_samples
from boxcrew.cli.output import Output, parse_settings
from boxcrew.core.config import Tree
from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.files import write_json, write_text
from boxcrew.report.doctor.page import doctor_page
from boxcrew.report.doctor.report import Diagnosis, diagnose, print_diagnosis, set_name
from boxcrew.tasks.base import TASKS
from boxcrew.train.bucket.records import local_run, weights
from boxcrew.train.config import RunConfig
from boxcrew.train.run.directory import choose_folder, require_run
from boxcrew.train.run.stored_settings import stored_settings

_WITH_A_RUN = frozenset({"data", "out", "name", "device", "seed"})  # all else is taken from the run


def doctor_command(words: list[str], out: Output) -> None:
    names, tree = parse_settings(words, positional=1)
    run = local_run(str(tree.pop("run")), weights) if "run" in tree else None
    if "data" not in tree and run is None:
        raise UsageError("doctor: which data set?", advice="boxcrew doctor data=PATH")
    config = _of_run(run, names, tree, out) if run else run_config(names[0] if names else None, tree)
    _require_detection(config)
    folder = choose_folder(config.local_out, Path("doctor") / (config.name or set_name(config.data.path)))
    _require_empty(folder)
    diagnosis = diagnose(config, out, run=run)
    print_diagnosis(diagnosis, out)
    _write(diagnosis, folder, command=shlex.join(["boxcrew", "doctor", *words]))
    out.info(f"page: {folder / 'doctor.html'} (for programs: doctor.json)")
    out.result({"out": str(folder), **diagnosis.to_json()})
    if config.data.strict:
        _require_clean(diagnosis, folder)


def _of_run(run: Path, names: list[str], tree: Tree, out: Output) -> RunConfig:
    """Return the settings of a run, with another data set or folder if they are given."""
    if extra := [*names, *(key for key in tree if key not in _WITH_A_RUN)]:
        problem = f"{extra[0]}: cannot be combined with run=, which has its own detector"
        raise UsageError(problem, advice="leave out one of the two")
    stored = stored_settings(require_run(run), out.warn)
    return stored.changed({"out": None, "name": None, **tree})


def _require_detection(config: RunConfig) -> None:
    """Refuse other kinds of data, for which `boxcrew data` is enough."""
    path = config.data.path
    if TASKS.get(config.task.name).predicts({}) != "boxes" or holds_samples(path, config.data.format):
        problem = f"doctor: {path}: only images with boxes can be examined"
        raise UsageError(problem, advice=f"boxcrew data {path} shows what is in it")


def _require_empty(folder: Path) -> None:
    """Check that `folder` is empty or new, and writable, before minutes are spent; leave nothing behind."""
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"out={folder}: not empty", advice="give a directory that does not exist yet")
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written to: {error.strerror}", advice="give out=DIR") from None
    finally:
        for path in new:
            with suppress(OSError):
                path.rmdir()


def _write(diagnosis: Diagnosis, folder: Path, *, command: str) -> None:
    page = doctor_page(diagnosis, command=command)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "doctor.json", diagnosis.to_json())
        write_text(folder / "doctor.html", page)
    except OSError as error:
        raise UsageError(f"out={folder}: cannot be written to: {error.strerror}") from None


def _require_clean(diagnosis: Diagnosis, folder: Path) -> None:
    problems = [problem for problem in diagnosis.source.problems if problem.action != "noted"]
    if problems:
        text = f"{diagnosis.path}: {len(problems)} problems, and data.strict=true; the first: {problems[0]}"
        raise DataError(text, advice=f"{folder / 'doctor.html'} shows all of them")
