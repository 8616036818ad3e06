"""`boxcrew doctor`."""

from __future__ import annotations

import errno
import itertools
import os
import shlex
from contextlib import suppress
from pathlib import Path

from boxcrew.api import run_config
from boxcrew.cli.data_examples import holds_examples
from boxcrew.cli.output import print_json, screen, settings
from boxcrew.core.config import Tree, read_yaml
from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.files import write_json, write_text
from boxcrew.report.doctor.page import doctor_page
from boxcrew.report.doctor.report import Diagnosis, diagnose, say_examination, set_name
from boxcrew.train.config import RunConfig
from boxcrew.train.run.directory import require_run

REPORTS = Path("runs") / "doctor"
_WITH_A_RUN = frozenset({"data", "out", "name", "device", "seed"})  # all else is as the run was trained


def doctor_command(words: list[str], *, as_json: bool) -> None:
    places, tree = settings(words, positional=1)
    run = Path(str(tree.pop("run"))) if "run" in tree else None
    if "data" not in tree and run is None:
        raise UsageError("doctor: of which data set?", advice="boxcrew doctor data=PATH")
    config = _of_run(run, places, tree) if run else _of_recipe(places, tree)
    _require_photos(config)
    folder = _choose_folder(config)
    _require_writable(folder)
    say = screen(as_json=as_json)
    diagnosis = diagnose(config, say, run=run)
    say_examination(diagnosis, say)
    _write(diagnosis, folder, command=shlex.join(["boxcrew", "doctor", *words]))
    say.say(f"page: {folder / 'doctor.html'} (the same for programs: doctor.json)")
    if as_json:
        print_json({"out": str(folder), **diagnosis.to_json()})
    if config.data.strict:
        _require_clean(diagnosis, folder)


def _of_recipe(places: list[str], tree: Tree) -> RunConfig:
    start = places[0] if places else None
    if start and Path(start).suffix not in {".yaml", ".yml"} and Path(start).exists():
        raise UsageError(f"{start}: not a recipe", advice=f"a data set is given as data={start}")
    return run_config(start, tree)


def _of_run(run: Path, places: list[str], tree: Tree) -> RunConfig:
    """The run's own settings; another data set may be looked at with them."""
    others = [*places, *(key for key in tree if key not in _WITH_A_RUN)]
    if others:
        raise UsageError(
            f"{others[0]}: cannot be given with run=, which has a detector of its own",
            advice="leave out one of the two",
        )
    stored = RunConfig.of(read_yaml(require_run(run) / "config.yaml"))
    return stored.changed({"out": None, "name": None, **tree})


def _require_photos(config: RunConfig) -> None:
    """Of other data it would have little to say that `boxcrew data` has not."""
    path = config.data.path
    if config.task.name != "detection" or holds_examples(path, config.data.format):
        raise UsageError(
            f"doctor: {path}: only photos with boxes are examined", advice=f"boxcrew data {path} looks at it"
        )


def _choose_folder(config: RunConfig) -> Path:
    """`out` itself, or the first free of runs/doctor/<name of the set>, …-2; nothing is made yet."""
    if config.out is None:
        first = REPORTS / (config.name or set_name(config.data.path))
        others = (first.with_name(f"{first.name}-{number}") for number in itertools.count(2))
        return next(folder for folder in itertools.chain([first], others) if not folder.exists())
    if config.out.exists() and (config.out.is_file() or any(config.out.iterdir())):
        raise UsageError(f"out={config.out}: not empty", advice="give a directory that does not exist yet")
    return config.out


def _require_writable(folder: Path) -> None:
    """Before minutes are spent on looking; what is made for it is taken away again."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written to: {error.strerror}", advice="give out=DIR") from None
    finally:
        for place in made:
            with suppress(OSError):
                place.rmdir()


def _write(diagnosis: Diagnosis, folder: Path, *, command: str) -> None:
    page = doctor_page(diagnosis, command=command)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "doctor.json", diagnosis.to_json())
        write_text(folder / "doctor.html", page)
    except OSError as error:
        raise UsageError(f"out={folder}: cannot be written to: {error.strerror}") from None


def _require_clean(diagnosis: Diagnosis, folder: Path) -> None:
    found = [problem for problem in diagnosis.source.problems if problem.action != "noted"]
    if found:
        raise DataError(
            f"{diagnosis.path}: {len(found)} problems, and data.strict=true; the first: {found[0]}",
            advice=f"{folder / 'doctor.html'} shows all of them",
        )
