"""Optuna's storage of a study, kept up to date for its dashboard and other programs.

The ledger and the run directories are the truth, and nothing is read back from here. So a storage that is
damaged or out of reach costs a study nothing: what is missing in it is written as soon as that is possible.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from boxcrew.core.errors import UsageError, first_line
from boxcrew.tune.ledger import Ledger, Trial
from boxcrew.tune.record import StudyRecord
from boxcrew.tune.sampling import frozen, quiet

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

JOURNAL = "journal.log"
_ID = "boxcrew"  # attribute of a study: which one it is


def absolute_url(url: str) -> str:
    """Return a storage's URL that means the same in any directory; `UsageError` if it is none."""
    kind, _, path = url.partition(":")
    if kind == "journal" and path:
        return f"journal:{Path(path).resolve()}"
    if kind == "sqlite" and path.startswith("///") and len(path) > 3:
        return f"sqlite:///{Path(path.removeprefix('///')).resolve()}"
    if "://" not in url or kind == "sqlite":
        advice = "write journal:DIR, sqlite:///FILE.db or postgresql://USER@HOST/DATABASE"
        raise UsageError(f"storage={url}: not a storage of Optuna", advice=advice)
    if re.search(r"//[^/@]*:[^/@]+@", url):
        raise UsageError(
            "storage=: a password would be written into study.json",
            advice="leave it out of the URL: give it by PGPASSWORD or ~/.pgpass",
        )
    return url


@dataclass(eq=False, kw_only=True)
class OptunaCopy:
    """The copy of a study in Optuna's storage."""

    study: StudyRecord
    ledger: Ledger
    storage: BaseStorage
    warn: Callable[[str], None]
    study_id: int
    _trouble: str = field(default="", init=False)

    @classmethod
    def open(
        cls, study: StudyRecord, folder: Path, ledger: Ledger, warn: Callable[[str], None]
    ) -> OptunaCopy:
        """Open or make the copy; `UsageError` if the storage cannot be reached, or has another study."""
        with quiet():
            storage = _own_journal(folder, warn) if study.storage is None else _storage(study.storage)
            study_id = _study_in(storage, study, folder)
        return cls(study=study, ledger=ledger, storage=storage, warn=warn, study_id=study_id)

    def sync(self, *, ended: bool = False) -> None:
        """Write what has changed; if the study has ended, trials that were not completed are pruned. Trouble
        is told once, and tried to mend the next time.
        """
        try:
            with quiet():
                stored = self.storage.get_all_trials(self.study_id, deepcopy=False)
                for trial in self.ledger.trials:
                    self._write(trial, stored[trial.number : trial.number + 1], ended=ended)
        except Exception as error:  # noqa: BLE001 - of any database, which the study does not depend on
            reason = first_line(error)
            if not self._trouble:
                self.warn(f"Optuna's storage cannot be written: {reason}; the study goes on without")
            self._trouble = reason
        else:
            self._trouble = ""

    def _write(self, trial: Trial, stored: list[FrozenTrial], *, ended: bool) -> None:
        from optuna.trial import TrialState

        now = frozen(trial, self.study)
        state = now.state
        if state == TrialState.PRUNED and not ended:
            state = TrialState.RUNNING  # it may go on
        if not stored:
            begun = frozen(Trial(asked=trial.asked), self.study)
            trial_id = self.storage.create_new_trial(self.study_id, template_trial=begun)
            known: dict[int, float] = {}
        elif stored[0].state.is_finished():
            return
        else:
            trial_id, known = stored[0]._trial_id, stored[0].intermediate_values
        for step, value in now.intermediate_values.items():
            if step not in known:
                self.storage.set_trial_intermediate_value(trial_id, step, value)
        if trial.failure is not None:
            self.storage.set_trial_user_attr(trial_id, "failure", trial.failure)
        if state.is_finished() or (ended and state == TrialState.RUNNING):
            last = TrialState.FAIL if state == TrialState.RUNNING else state
            values = [trial.values[trial.rung]] if trial.values and last != TrialState.FAIL else None
            self.storage.set_trial_state_values(trial_id, last, values)


def _storage(url: str) -> BaseStorage:
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    try:
        if url.startswith("journal:"):
            folder = Path(url.removeprefix("journal:"))
            folder.mkdir(parents=True, exist_ok=True)
            return JournalStorage(JournalFileBackend(str(folder / JOURNAL)))
        return RDBStorage(url)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"storage={url}: {error.name} is not installed", advice=f"pip install {error.name}"
        ) from None
    except Exception as error:  # noqa: BLE001 - of any database
        reason = first_line(error)
        raise UsageError(
            f"storage={url}: cannot be reached: {reason}", advice="leave storage= out to keep it in the study"
        ) from None


def _own_journal(folder: Path, warn: Callable[[str], None]) -> BaseStorage:
    """Return the journal in the study's directory, which only this process writes. One that is damaged, as by
    a kill in the middle of a line, is put aside, and written again.
    """
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    file = folder / JOURNAL
    for lock in folder.glob(f"{JOURNAL}.lock*"):  # of a process that was killed while it wrote
        with suppress(OSError):
            lock.unlink()
    try:
        if file.is_file() and not file.read_bytes().endswith(b"\n") and file.stat().st_size:
            raise ValueError("its last line was cut off")
        return JournalStorage(JournalFileBackend(str(file)))
    except (ValueError, KeyError) as error:
        aside = next(
            path
            for number in range(1, 10**6)
            if not (path := folder / f"{JOURNAL}.damaged-{number}").exists()
        )
        file.replace(aside)
        warn(f"{file}: {error}; kept as {aside.name} and written again")
        return JournalStorage(JournalFileBackend(str(file)))


def _study_in(storage: BaseStorage, study: StudyRecord, folder: Path) -> int:
    """Return the number of the copy in the storage, made if there is none; `UsageError` if it is another."""
    from optuna.study import StudyDirection

    name = folder.resolve().name
    known = {each.study_name: each._study_id for each in storage.get_all_studies()}
    if name not in known:
        direction = StudyDirection.MAXIMIZE if study.higher_is_better else StudyDirection.MINIMIZE
        study_id = storage.create_new_study([direction], name)
        storage.set_study_user_attr(study_id, _ID, study.identity)
        return study_id
    if storage.get_study_user_attrs(known[name]).get(_ID) != study.identity:
        raise UsageError(
            f"storage={study.storage}: has a study named {name} that is another one",
            advice="give another out= or name=, or another storage=",
        )
    return known[name]
