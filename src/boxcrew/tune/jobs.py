"""The trainings of a study that machines take from its directory, and how the study and they tell each other.

    jobs/0007-WORD.json    training 7: what is to be done
    jobs/0007-WORD.claim   who does it; only one machine can create it
    jobs/0007-WORD.stop    the study wants it to end: `stop` in order, `kill` at once
    jobs/0007-WORD.done    its process has ended: why it failed, if it did, and the seconds that it took
    joined/NAME/           a machine that takes trainings: its lock, and the lease that it renews

Whether a training has got where it should is read from its run, as always. Who has claimed one and gives no
sign of life has lost it: the study posts it once more, with another random word.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boxcrew.core.files import write_json
from boxcrew.core.lock_owner import owner_of
from boxcrew.train.run.directory import read_record
from boxcrew.train.run.lease import EXPIRY, Sign, sign_of
from boxcrew.tune.worker import Training, Work

JOBS, JOINED = "jobs", "joined"
STOP, KILL = "stop", "kill"
_POLL = 0.1  # seconds between two checks for what has ended
_NAME = re.compile(r"(\d{4,})-([0-9a-f]+)\.json")


@dataclass(frozen=True, kw_only=True)
class Posted:
    """A training as it was posted: its files in the study's directory."""

    study: Path
    job: int
    word: str  # random: each time that it is posted another

    @classmethod
    def all(cls, study: Path) -> list[Posted]:
        """Return those that are there, the oldest first."""
        names = (_NAME.fullmatch(path.name) for path in (study / JOBS).glob("*.json"))
        found = (cls(study=study, job=int(name[1]), word=name[2]) for name in names if name)
        return sorted(found, key=lambda posted: posted.job)

    def file(self, kind: str) -> Path:
        return self.study / JOBS / f"{self.job:04d}-{self.word}.{kind}"

    def post(self, work: Work) -> None:
        """Write down what is to be done. Its run is named as the study's directory has it: another machine
        may see that elsewhere.
        """
        out = work.folder.relative_to(self.study)
        write_json(self.file("json"), {"config": {**work.config, "out": str(out)}, "pause_at": work.pause_at})

    def work(self) -> Work | None:
        """Return what is to be done; None if it is there no more."""
        record = self._read("json")
        if record is None:
            return None
        out = str(self.study / record["config"]["out"])
        return Work(config={**record["config"], "out": out}, pause_at=record["pause_at"])

    def claim(self, name: str) -> bool:
        """Claim it for a machine; return whether it is the first to do so."""
        try:
            with self.file("claim").open("x", encoding="utf-8") as file:
                json.dump({"by": name}, file)
        except OSError:  # it is claimed, or posted no more
            return False
        return True

    def claimed_by(self) -> str | None:
        """Return the machine that has claimed it; empty if that has not written its name yet."""
        if not self.file("claim").exists():
            return None
        return str((self._read("claim") or {}).get("by", ""))

    def ask(self, what: str) -> None:
        """Ask the machine that has claimed it to end it."""
        write_json(self.file("stop"), {"ask": what})

    def asked(self) -> str | None:
        """Return how it is to end; None if it is not."""
        return (self._read("stop") or {}).get("ask")

    def end(self, failure: str | None, seconds: float) -> None:
        """Write down that its process has ended, unless the study has given it up."""
        if self.file("json").exists():
            write_json(self.file("done"), {"failure": failure, "seconds": seconds})

    def ended(self) -> dict[str, Any] | None:
        """Return how it has ended; None if it has not."""
        return self._read("done")

    def remove(self) -> None:
        """Remove its files: what is to be done first, so that nobody claims it."""
        for kind in ("json", "stop", "done", "claim"):
            self.file(kind).unlink(missing_ok=True)

    def _read(self, kind: str) -> dict[str, Any] | None:
        with suppress(OSError, ValueError):  # not there, or not whole yet
            return read_record(self.file(kind).parent, self.file(kind).name) or None
        return None


@dataclass(eq=False)
class Watch:
    """A watch over those who have claimed trainings, which counts seconds of its own."""

    study: Path
    _signs: dict[str, tuple[Sign | None, float]] = field(default_factory=dict)  # and since when

    def is_lost(self, posted: Posted) -> bool:
        """Return whether the machine that has claimed a training has left, has ended, or has given no sign of
        life for too long. One that was not claimed is not lost.
        """
        name = posted.claimed_by()
        if name is None:
            return False
        folder = self.study / JOINED / name
        owner = owner_of(folder) if name else None
        if name and (owner is None or owner.is_dead()):
            return True
        key, sign = name or posted.word, sign_of(folder) if name else None
        now = time.monotonic()
        if key not in self._signs or self._signs[key][0] != sign:
            self._signs[key] = sign, now
        return now - self._signs[key][1] > EXPIRY


class PostedTraining:
    """A training that some machine does, as the study sees it. One that was posted before the study was
    stopped is the same.
    """

    def __init__(self, study: Path, job: int, work: Work, watch: Watch) -> None:
        self.work = work
        self._watch = watch
        self._posted = Posted(study=study, job=job, word=secrets.token_hex(4))
        before = [posted for posted in Posted.all(study) if posted.job == job]
        if before:
            self._posted = before[-1]
        else:
            self._posted.post(work)
        self._began = time.monotonic()
        self._end: dict[str, Any] | None = None

    def has_ended(self) -> bool:
        """Return whether nobody does it any more."""
        if self._end is None:
            self._end = self._posted.ended()
            if self._end is None and self._watch.is_lost(self._posted):
                self._end = {}
        return self._end is not None

    def seconds(self) -> float:
        """Return for how long its process has run."""
        return float((self._end or {}).get("seconds", time.monotonic() - self._began))

    def stop(self) -> None:
        """Let it finish its step, save and end."""
        self._ask(STOP)

    def kill(self) -> None:
        self._ask(KILL)

    def failure(self) -> str | None:
        """Return why the work failed, after the end; None if it did not, or was cut off."""
        self._posted.remove()
        return (self._end or {}).get("failure")

    def _ask(self, what: str) -> None:
        if self._posted.claim("the study"):  # nobody has begun it, and nobody shall
            self._end = {"seconds": 0.0}
        elif self._end is None:
            self._posted.ask(what)


class JoinedBackend:
    """The machines that take a study's trainings from its directory."""

    def __init__(self, study: Path, *, require_sound: Callable[[], None] = lambda: None) -> None:
        """Begin to post trainings. `require_sound` raises an error if nobody can take any."""
        self._study, self._require_sound = study, require_sound
        self._watch = Watch(study)
        (study / JOBS).mkdir(exist_ok=True)

    def begin(self, job: int, work: Work) -> Training:
        return PostedTraining(self._study, job, work, self._watch)

    def wait(self, trainings: Sequence[Training], seconds: float) -> Sequence[Training]:
        until = time.monotonic() + seconds
        while True:
            self._require_sound()
            ended = [each for each in trainings if isinstance(each, PostedTraining) and each.has_ended()]
            if ended or time.monotonic() > until:
                return ended
            time.sleep(_POLL)


def unclaimed(study: Path) -> Iterator[Posted]:
    """Yield the trainings that nobody has claimed yet."""
    return (posted for posted in Posted.all(study) if not posted.file("claim").exists())
