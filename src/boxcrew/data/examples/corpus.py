"""Running text for language models: overlapping windows of characters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Ints
from boxcrew.data.checks.problem import Problem
from boxcrew.data.detection.source import SPLITS
from boxcrew.data.examples.alphabet import encode_text, is_running_text, text_vocabulary
from boxcrew.data.examples.example_set import ExampleOptions, ExampleSet, ExampleSplit, Fetched

VAL_SHARE = 0.1
"""Share of the characters, at the end, that becomes the validation split if there is none."""


class TextWindows(ExampleSplit):
    """Windows of `length` + 1 tokens: the first `length` are inputs, the last `length` are targets. With a
    stride of `length` no token is a target twice. The very first token is no target, nor are those at the end
    that do not fill a window: there is no padding, since token 0 is the unknown character.
    """

    def __init__(self, tokens: Ints, name: str, *, length: int, stride: int) -> None:
        """Cut `tokens` into windows, whose keys are `name` and their position."""
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


def open_corpus(
    root: Path, texts: dict[str, str], options: ExampleOptions, *, format: str, problems: list[Problem]
) -> ExampleSet:
    """Open running text, given by split. Training windows overlap by half, so that no character is always
    the first. Characters that are not in the training text, or not in `options.encoding`, are unknown.
    `problems` are those met on reading; more are added.
    """
    length = options.length
    texts = _divide(root, texts, length, problems)
    _require_windows(f"{root}: the text of train", texts["train"], length, count=1)
    known = options.encoding if options.encoding and is_running_text(options.encoding) else None
    vocabulary = known or text_vocabulary([texts["train"]])
    splits = {}
    for split in (split for split in SPLITS if split in texts):
        tokens = encode_text(vocabulary, texts[split])
        stride = max(1, length // 2) if split == "train" else length
        splits[split] = TextWindows(tokens, split, length=length, stride=stride)
    shape, reported = (length + 1,), tuple(problems)
    return ExampleSet(root, format, "tokens", (), shape, splits, problems=reported, encoding=vocabulary)


def _divide(root: Path, texts: dict[str, str], length: int, problems: list[Problem]) -> dict[str, str]:
    """Leave out splits other than training that are shorter than a window. Add a validation text if there is
    none: the end of the training text, at least one window.
    """
    for split in SPLITS[1:]:
        if split in texts and len(texts[split]) <= length:
            message = f"has only {len(texts[split])} characters, but length={length} needs {length + 1}"
            problems.append(Problem("text-short", str(root), message, "left out", at=split))
            texts = {name: text for name, text in texts.items() if name != split}
    train = texts.get("train", "")
    if not train.strip():
        raise DataError(f"{root}: has no text to train on", advice="give a text file that is not empty")
    if "val" in texts:
        return texts
    _require_windows(f"{root}: the text", train, length, count=2)
    num_held = max(round(len(train) * VAL_SHARE), length + 1)
    message = f"has no validation text; the last {num_held} of its {len(train)} characters are held out"
    problems.append(Problem("made-split", str(root), message, "noted"))
    return {**texts, "train": train[:-num_held], "val": train[-num_held:]}


def _require_windows(subject: str, text: str, length: int, *, count: int) -> None:
    if len(text) >= count * (length + 1):
        return
    most = len(text) // count - 1
    shorter = f", or use shorter windows: length={most} at most" if most > 0 else ""
    message = f"{subject} has only {len(text)} characters, but length={length} needs {count * (length + 1)}"
    raise DataError(message, advice=f"give more text{shorter}")
