"""Validation splits and classes, which all formats of labeled samples resolve in the same way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Protocol, Self, TypeVar

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Bools, Ints
from boxcrew.data.checks.problem import Action, Problem, ProblemKind, first_problem
from boxcrew.data.detection.annotations import VAL_SHARE, seeded_draw
from boxcrew.data.detection.source import SPLITS


class LabeledSamples(Protocol):
    """The N samples of one split."""

    @property
    def labels(self) -> Ints: ...  # (N,)

    def __len__(self) -> int: ...

    def select(self, mask: Bools) -> Self: ...

    def with_labels(self, labels: Ints) -> Self: ...


Samples = TypeVar("Samples", bound=LabeledSamples)


def unusable_split(split: str, file: Path, message: str, kind: ProblemKind, *, count: int = 1) -> Problem:
    """Report a split that is left out because of `file`. `message` may begin with the file's path."""
    return Problem(kind, file.name, message.removeprefix(f"{file}: "), "left out", at=split, count=count)


def hold_out_mask(keys: Sequence[str], labels: Ints, *, seed: int, share: float = VAL_SHARE) -> Bools:
    """Return a mask (N,) of the samples to hold out for validation. It depends only on keys, labels and seed,
    and one sample more or less hardly changes it. Samples with the same key stay together, and every class
    keeps at least one for training, so the mask may be all false.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        groups[key].append(index)
    classes = labels.tolist()
    remaining, num_held, mask = Counter(classes), 0, np.zeros(len(keys), dtype=np.bool_)
    for key in sorted(groups, key=lambda key: seeded_draw(seed, key)):
        if num_held >= max(1, round(len(keys) * share)):
            break
        group = Counter(classes[index] for index in groups[key])
        if all(remaining[label] > count for label, count in group.items()):
            remaining.subtract(group)
            num_held += len(groups[key])
            mask[groups[key]] = True
    return mask


def hold_out(
    root: Path,
    splits: Mapping[str, Samples],
    keys: Callable[[Samples], Sequence[str]],
    problems: list[Problem],
    *,
    seed: int,
    share: float = VAL_SHARE,
) -> dict[str, Samples]:
    """Move training samples, chosen by `hold_out_mask`, to a validation split if there is none, and add that
    to `problems`.
    """
    train = splits.get("train")
    if train is None or not len(train) or "val" in splits:
        return dict(splits)
    mask = hold_out_mask(keys(train), train.labels, seed=seed, share=share)
    if not mask.any():
        return dict(splits)
    held = f"{mask.sum()} of its {len(mask)} training examples"
    message = f"has no validation split; {held} are held out (seed {seed})"
    problems.append(Problem("made-split", str(root), message, "noted"))
    return {**splits, "train": train.select(~mask), "val": train.select(mask)}


def resolve_splits(
    root: Path,
    names: Sequence[str],
    splits: Mapping[str, Samples],
    problems: Sequence[Problem],
    *,
    eval_only: bool = False,
) -> tuple[tuple[str, ...], dict[str, Samples], list[Problem]]:
    """Return the classes of `names` that training has samples of, the relabeled splits that are not empty, in
    their usual order, and the problem that other classes have no samples, if so. Labels are indices into
    `names`. With `eval_only` the samples of any split count, because another set was trained on. Raises
    `DataError` with the first of `problems` if no class is left.
    """
    labels = {split: splits[split].labels for split in SPLITS if split in splits}
    counts = {split: np.bincount(indices, minlength=len(names)) for split, indices in labels.items()}
    counted = [count for split, count in counts.items() if eval_only or split == "train"]
    trained = np.sum([np.zeros(len(names), dtype=np.int64), *counted], axis=0) > 0
    if not trained.any():
        advice = first_problem(problems) or "it needs examples to train on"
        raise DataError(f"{root}: has nothing to train on", advice=advice)
    numbers = np.where(trained, np.cumsum(trained) - 1, -1).astype(np.int64)  # new label by old label
    relabeled: dict[str, Samples] = {}
    for split, indices in labels.items():
        kept = splits[split].select(numbers[indices] >= 0)
        if len(kept):
            relabeled[split] = kept.with_labels(numbers[kept.labels])
    absent: list[Problem] = []
    if not trained.all():
        num_lost = sum(int(count[~trained].sum()) for count in counts.values())
        listed = ", ".join(compress(names, ~trained))
        action: Action = "left out" if num_lost else "noted"
        lost = f"; {num_lost} of other splits are left out" if num_lost else ""
        message = f"training has no example of {listed}{lost}"
        absent.append(Problem("class-empty", str(root), message, action, value=listed))
    return tuple(compress(names, trained)), relabeled, absent
