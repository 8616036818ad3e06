"""What the formats of labelled examples share: which examples are held out, and which classes are learnt."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Bools, Ints
from boxcrew.data.checks.problem import Action, Kind, Problem
from boxcrew.data.detection.annotations import VAL_SHARE
from boxcrew.data.detection.source import SPLITS
from boxcrew.data.examples.example_set import Array, InMemory


@dataclass(frozen=True, kw_only=True, eq=False)
class Labelled:
    """Examples that are there, N of them."""

    inputs: Array  # (N, …)
    labels: Ints  # (N,)
    keys: Sequence[str]

    def select(self, mask: Bools) -> Labelled:
        if mask.all():
            return self
        keys = [self.keys[index] for index in np.flatnonzero(mask).tolist()]
        return Labelled(inputs=self.inputs[mask], labels=self.labels[mask], keys=keys)


def left_out_split(split: str, file: Path, what: str, kind: Kind, *, count: int = 1) -> Problem:
    """That a split cannot be used because of a file: in words, or in those of the error that says so. The
    others can, so this is no reason to stop.
    """
    said = what.removeprefix(f"{file}: ")
    return Problem(kind=kind, file=file.name, at=split, what=said, action="left out", count=count)


def held_out(keys: Sequence[str], labels: Ints, *, seed: int, share: float = VAL_SHARE) -> Bools:
    """(N,) those of the validation split, where it has to be made. Depends only on the keys, labels and seed,
    and an example more or less hardly moves the others. Examples of one key stay together, and of every
    class at least one is left for training, so there may be none to hold out.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        groups[key].append(index)
    known = labels.tolist()
    left, taken = Counter(known), 0
    chosen = np.zeros(len(keys), dtype=np.bool_)
    for key in sorted(groups, key=lambda key: _draw(seed, key)):
        if taken >= max(1, round(len(keys) * share)):
            break
        group = Counter(known[index] for index in groups[key])
        if all(left[label] > count for label, count in group.items()):
            left.subtract(group)
            taken += len(groups[key])
            chosen[groups[key]] = True
    return chosen


def _draw(seed: int, key: str) -> bytes:
    return hashlib.blake2b(f"{seed}:{key}".encode(errors="surrogateescape"), digest_size=16).digest()


def made_split(root: Path, chosen: Bools, *, seed: int) -> tuple[Problem, ...]:
    """That these were held out, if any were."""
    if not chosen.any():
        return ()
    what = (
        f"has no validation split; {chosen.sum()} of its {len(chosen)} training examples are taken"
        f" (seed {seed})"
    )
    return (Problem(kind="made-split", file=str(root), what=what, action="noted"),)


@dataclass(frozen=True, kw_only=True, eq=False)
class Settled:
    """The classes that training has examples of."""

    classes: tuple[str, ...]
    numbers: Ints  # by label before, the label now; -1 for those of which training has no example
    problems: tuple[Problem, ...]


def settle_classes(
    root: Path,
    names: Sequence[str],
    labels: Mapping[str, Ints],
    problems: Sequence[Problem],
    *,
    evaluated: bool = False,
) -> Settled:
    """`labels` by split, as places in `names`. `DataError` if training has nothing; the `problems` met so far
    tell why. Of a set that is only `evaluated` all splits count: it is another's training that matters.
    """
    counts = {split: np.bincount(part, minlength=len(names)) for split, part in labels.items()}
    learnt = [count for split, count in counts.items() if evaluated or split == "train"]
    trained = np.sum([np.zeros(len(names), dtype=np.int64), *learnt], axis=0) > 0
    classes = tuple(name for name, is_there in zip(names, trained, strict=True) if is_there)
    if not classes:
        raise DataError(
            f"{root}: has nothing to train on", advice=first_of(problems) or "it needs examples to train on"
        )
    absent = [name for name, is_there in zip(names, trained, strict=True) if not is_there]
    lost = sum(int(count[~trained].sum()) for count in counts.values())
    return Settled(
        classes=classes,
        numbers=np.where(trained, np.cumsum(trained) - 1, -1).astype(np.int64),
        problems=(_absence(root, absent, lost),) if absent else (),
    )


def first_of(problems: Sequence[Problem]) -> str:
    """What may be the reason that nothing is left; empty, if it is not known."""
    lost = [problem for problem in problems if problem.action == "left out"]
    return f"the first of {len(lost)} problems: {lost[0]}" if lost else ""


def settle(
    root: Path,
    names: Sequence[str],
    parts: Mapping[str, Labelled],
    problems: Sequence[Problem],
    *,
    evaluated: bool = False,
) -> tuple[Settled, dict[str, InMemory]]:
    """`settle_classes`, and the splits, whose examples have the classes that are left."""
    labels = {split: part.labels for split, part in parts.items()}
    settled = settle_classes(root, names, labels, problems, evaluated=evaluated)
    splits = {}
    for split in (split for split in SPLITS if split in parts):
        part = parts[split].select(settled.numbers[parts[split].labels] >= 0)
        if len(part.labels):
            splits[split] = InMemory(part.inputs, settled.numbers[part.labels], part.keys)
    return settled, splits


def _absence(root: Path, absent: Sequence[str], lost: int) -> Problem:
    action: Action = "left out" if lost else "noted"
    names = ", ".join(absent)
    what = f"training has no example of {names}" + (f"; {lost} of other splits are left out" if lost else "")
    return Problem(kind="class-empty", file=str(root), what=what, value=names, action=action)
