"""Running text that is to be continued: windows of characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Ints
from boxcrew.data.checks.problem import Problem
from boxcrew.data.detection.source import SPLITS
from boxcrew.data.examples.alphabet import encode_text, is_of_running_text, meaning_of_text
from boxcrew.data.examples.example_set import Examples, ExampleSet, Fetched, Wanted

VAL_SHARE = 0.1
"""Of the characters, at the end, where there is no text for validation."""


class Windows(Examples):
    """`length` + 1 characters each: the first `length` are read, the last `length` are to be told. With a
    stride of `length` no character is told twice; the first is not told, nor are those at the end that do not
    fill a window, fewer than `length`: no token could fill it up, as 0 is a character that is not known.
    """

    def __init__(self, tokens: Ints, name: str, *, length: int, stride: int) -> None:
        """`name` and a position are the key of a window."""
        assert len(tokens) > length, (len(tokens), length)
        self._tokens = tokens.astype(np.int32)  # half the memory
        self._name = name
        self._starts = np.arange(0, len(tokens) - length, stride)
        self._within = np.arange(length + 1)
        self.labels = np.zeros(len(self._starts), dtype=np.int64)

    def key(self, index: int) -> str:
        return f"{self._name}[{self._starts[index]}]"

    def fetch(self, indices: Sequence[int] | Ints) -> Fetched:
        chosen = np.asarray(indices, dtype=np.int64)
        inputs = self._tokens[self._starts[chosen, None] + self._within].astype(np.int64)
        return Fetched(inputs=inputs, labels=self.labels[chosen], indices=chosen)


def open_corpus(root: Path, texts: Mapping[str, str], wanted: Wanted, *, format: str) -> ExampleSet:
    """`texts` by split. Windows to train on overlap by half, so that no character is always the first.
    Characters that are only in other splits are unknown ones, as are those a set before did not have whose
    meaning is wanted.
    """
    texts, short = _long_enough(root, texts, wanted.length)
    texts, made = _hold_out(root, texts, wanted.length)
    _require_windows(f"{root}: the text of train", texts["train"], wanted.length, count=1)
    before = wanted.meaning if wanted.meaning and is_of_running_text(wanted.meaning) else None
    meaning = before or meaning_of_text([texts["train"]])
    strides = dict.fromkeys(texts, wanted.length) | {"train": max(1, wanted.length // 2)}
    return ExampleSet(
        root=root,
        format=format,
        kind="tokens",
        classes=(),
        shape=(wanted.length + 1,),
        splits={
            split: Windows(
                encode_text(meaning, texts[split]), split, length=wanted.length, stride=strides[split]
            )
            for split in SPLITS
            if split in texts
        },
        problems=(*short, *made),
        meaning=meaning,
    )


def _hold_out(
    root: Path, texts: Mapping[str, str], length: int
) -> tuple[dict[str, str], tuple[Problem, ...]]:
    """With a text for validation: where there is none, the end of what is to train on, at least a window."""
    if not texts.get("train", "").strip():
        raise DataError(f"{root}: has no text to train on", advice="give a text file that is not empty")
    if "val" in texts:
        return dict(texts), ()
    text = texts["train"]
    _require_windows(f"{root}: the text", text, length, count=2)
    num_held = max(round(len(text) * VAL_SHARE), length + 1)
    what = f"has no validation text; the last {num_held} of its {len(text)} characters are taken"
    problem = Problem(kind="made-split", file=str(root), what=what, action="noted")
    return {**texts, "train": text[:-num_held], "val": text[-num_held:]}, (problem,)


def _long_enough(
    root: Path, texts: Mapping[str, str], length: int
) -> tuple[dict[str, str], tuple[Problem, ...]]:
    """Without splits that are shorter than a window, but for that to train on."""
    others = [split for split in SPLITS if split in texts and split != "train"]
    short = [split for split in others if len(texts[split]) <= length]
    problems = (
        Problem(
            kind="text-short",
            file=str(root),
            at=split,
            what=f"has only {len(texts[split])} characters, but length={length} needs {length + 1}",
            action="left out",
        )
        for split in short
    )
    return {split: text for split, text in texts.items() if split not in short}, tuple(problems)


def _require_windows(what: str, text: str, length: int, *, count: int) -> None:
    if len(text) >= count * (length + 1):
        return
    most = len(text) // count - 1
    shorter = f", or use shorter windows: length={most} at most" if most > 0 else ""
    raise DataError(
        f"{what} has only {len(text)} characters, but length={length} needs {count * (length + 1)}",
        advice=f"give more text{shorter}",
    )
