"""A study as commands use it: begun, continued, and brought to its end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from boxcrew.core.errors import BoxcrewError, UsageError
from boxcrew.core.lock_owner import LOCK_FILES
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.directory import choose_folder
from boxcrew.train.run.lock import locked
from boxcrew.tune.backends import training_backend
from boxcrew.tune.finish import finish
from boxcrew.tune.ledger import Ledger
from boxcrew.tune.prepare import prepare_study, require_same_data
from boxcrew.tune.record import STUDY, StudyRecord, read_study
from boxcrew.tune.report import write_report
from boxcrew.tune.runner import Interrupted, Runner
from boxcrew.tune.settings import TuneConfig
from boxcrew.tune.storage import OptunaCopy
from boxcrew.tune.worker import TrainingBackend, preload


def tune(config: TuneConfig, screen: Screen) -> dict[str, Any]:
    """Search for better settings, and return the report."""
    began, folder = time.monotonic(), _new_folder(config)
    with locked(folder, screen.info):
        preload()
        study = prepare_study(config, screen)
        if study.storage is not None:  # which may be out of reach: then there is no study
            OptunaCopy.open(study, folder, Ledger(folder=folder), screen.warn)
        with training_backend(study, folder.resolve(), screen) as backend:
            study.write(folder)
            return _run(study, folder, screen, began, backend)


def resume_study(folder: Path, screen: Screen) -> dict[str, Any]:
    """Continue a study that was stopped or killed, as if it had not been, and return the report."""
    began, study = time.monotonic(), read_study(folder)
    with locked(folder, screen.info):
        preload()
        require_same_data(study)
        with training_backend(study, folder.resolve(), screen) as backend:
            return _run(study, folder, screen, began, backend)


def read_state(folder: Path) -> tuple[StudyRecord, Ledger]:
    """Return the record of a study and all that has happened in it."""
    return read_study(folder), Ledger.read(folder)


def _run(
    study: StudyRecord, folder: Path, screen: Screen, began: float, backend: TrainingBackend
) -> dict[str, Any]:
    ledger = Ledger.reopen(folder)
    copy = OptunaCopy.open(study, folder, ledger, screen.warn)
    copy.sync()
    runner = Runner(
        study=study,
        folder=folder.resolve(),
        ledger=ledger,
        screen=screen,
        on_change=copy.sync,
        began=began,
        backend=backend,
    )
    screen.info(f"study: {folder}")
    try:
        with runner.running():
            runner.search()
            finish(runner)
    except Interrupted:
        raise Interrupted(folder) from None
    except BoxcrewError:  # nothing was finished, but there is something to see
        write_report(study, folder, ledger, screen)
        raise
    copy.sync(ended=True)
    return write_report(study, folder, ledger, screen)


def _new_folder(config: TuneConfig) -> Path:
    """Return the directory of a new study, which holds nothing yet."""
    folder = choose_folder(config.out, Path("tune") / config.name) if config.out is None else config.out
    if (folder / STUDY).is_file():
        raise UsageError(
            f"out={folder}: a study that has begun", advice=f"boxcrew tune resume study={folder}"
        )
    if folder.is_file() or (
        folder.is_dir() and any(path.name not in LOCK_FILES for path in folder.iterdir())
    ):
        raise UsageError(f"out={folder}: not empty", advice="give a directory that does not exist yet")
    return folder
