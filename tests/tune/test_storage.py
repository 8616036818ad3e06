"""Optuna's storage of a study: what is in it, and what happens to one that is damaged or not ours."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from boxcrew.core.errors import UsageError
from boxcrew.tune.ledger import Ledger, TrainingEnded, TrainingStarted, TrialDrawn
from boxcrew.tune.record import StudyRecord
from boxcrew.tune.storage import JOURNAL, OptunaCopy, absolute_url


def ignore(text: str) -> None: ...


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Trial 0 complete, 1 at its first rung, 2 failed, 3 running."""
    folder = tmp_path / "study"
    folder.mkdir()
    ledger = Ledger(folder=folder)
    for number in range(4):
        params = {"optim.rate": 1e-3 * (number + 1), "net.dropout": 0.1}
        ledger.add(TrialDrawn(trial=number, params=params, settings=params, rungs=(3, 9, 27), bracket=0))
        last = 3 if number == 0 else 1
        for rung in range(last):
            job = len(ledger.jobs)
            ledger.add(TrainingStarted(job=job, trial=number, rung=rung, slot=0, begins=0.0, ends=1.0))
            if number == 2:
                ledger.add(TrainingEnded(job=job, failure="loss is nan", at=1.0))
            elif number < 2:
                ledger.add(TrainingEnded(job=job, value=0.5 + 0.1 * rung, at=1.0))
    return ledger


STATES = [TrialState.COMPLETE, TrialState.RUNNING, TrialState.FAIL, TrialState.RUNNING]


def states(mirror: OptunaCopy) -> list[TrialState]:
    return [trial.state for trial in mirror.storage.get_all_trials(mirror.study_id)]


def test_all_trials_are_there_with_their_values(record: StudyRecord, ledger: Ledger) -> None:
    mirror = OptunaCopy.open(record, ledger.folder, ledger, ignore)
    for _ in range(2):  # the second time there is nothing to do
        mirror.sync()
        assert states(mirror) == STATES
    trials = mirror.storage.get_all_trials(mirror.study_id)
    assert trials[0].value == pytest.approx(0.7)
    assert list(trials[0].intermediate_values) == [3, 9, 27]
    assert trials[2].user_attrs["failure"] == "loss is nan"
    mirror.sync(ended=True)
    assert states(mirror)[1] == TrialState.PRUNED
    assert TrialState.RUNNING not in states(mirror)


def test_a_journal_that_was_cut_off_is_put_aside_and_written_again(
    record: StudyRecord, ledger: Ledger
) -> None:
    OptunaCopy.open(record, ledger.folder, ledger, ignore).sync()
    journal = ledger.folder / JOURNAL
    whole = journal.read_bytes()
    warnings: list[str] = []
    for number, damage in enumerate((whole[:-7], b'{"op_code"' + whole), start=1):
        journal.write_bytes(damage)
        mirror = OptunaCopy.open(record, ledger.folder, ledger, warnings.append)
        mirror.sync()
        assert states(mirror) == STATES
        assert (ledger.folder / f"{JOURNAL}.damaged-{number}").read_bytes() == damage
    assert len(warnings) == 2


def test_another_storage(record: StudyRecord, ledger: Ledger, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'all.db'}"
    own = record.model_copy(update={"storage": url})
    mirror = OptunaCopy.open(own, ledger.folder, ledger, ignore)
    mirror.sync()
    assert len(optuna.load_study(study_name="study", storage=url).trials) == 4
    assert states(OptunaCopy.open(own, ledger.folder, ledger, ignore)) == STATES
    foreign = own.model_copy(update={"identity": "another"})
    with pytest.raises(UsageError, match="a study named study that is another one"):
        OptunaCopy.open(foreign, ledger.folder, ledger, ignore)


def test_a_storage_that_is_lost_costs_the_study_nothing(
    record: StudyRecord, ledger: Ledger, tmp_path: Path
) -> None:
    url = f"journal:{tmp_path / 'shared'}"
    warnings: list[str] = []
    mirror = OptunaCopy.open(
        record.model_copy(update={"storage": url}), ledger.folder, ledger, warnings.append
    )
    file = tmp_path / "shared" / JOURNAL
    content = file.read_bytes()
    file.unlink()
    (tmp_path / "shared").rmdir()
    mirror.sync()
    mirror.sync()
    assert len(warnings) == 1
    assert "the study goes on without" in warnings[0]
    (tmp_path / "shared").mkdir()
    file.write_bytes(content)
    mirror.sync()
    assert states(mirror) == STATES


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("nonsense", "not a storage of Optuna"),
        ("sqlite://", "not a storage of Optuna"),
        ("postgresql://me:secret@host/db", "a password would be written"),
    ],
)
def test_wrong_urls(url: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as error:
        absolute_url(url)
    assert "secret" not in error.value.message


def test_a_storage_out_of_reach(record: StudyRecord, ledger: Ledger, tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path / 'no' / 'such.db'}", "postgresql://nowhere.invalid/db"):
        study = record.model_copy(update={"storage": url})
        with pytest.raises(UsageError, match=r"cannot be reached|is not installed"):
            OptunaCopy.open(study, ledger.folder, ledger, ignore)
