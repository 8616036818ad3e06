"""Text files: running text that is to be continued, or texts of classes that are to be told apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.units import counted
from boxcrew.data.checks.problem import Problem
from boxcrew.data.examples.alphabet import Unit, encode_texts, fixed_length_vocabulary
from boxcrew.data.examples.class_folders import (
    class_folders,
    files_outside_classes,
    has_class_folders,
    has_several_classes,
    stray_problems,
    unclassified_problems,
    unlistable_problems,
)
from boxcrew.data.examples.corpus import open_corpus
from boxcrew.data.examples.example_set import EXAMPLE_FORMATS, ExampleFormat, ExampleOptions, ExampleSet
from boxcrew.data.examples.labelled import (
    LabeledArrays,
    hold_out_mask,
    made_split_problem,
    resolve_splits,
    unusable_split,
)
from boxcrew.data.examples.plain_text import read_utf8
from boxcrew.data.folders import files_below, names_in, split_of_file, stem_of, suffix_of
from boxcrew.data.images.reading import IMAGE_SUFFIXES

TEXT_SUFFIXES = frozenset({".txt"})
_ABOUT = frozenset({"classes", "copying", "copyright", "labels", "licence", "license", "notice", "readme"})
"""Files of these names, in lower case, speak about the data."""


@EXAMPLE_FORMATS.register("text")
class TextFormat(ExampleFormat):
    """One file, or files named after splits, are running text. Of several files each is a class, and a line
    an example; in a folder for each class a file is an example. Where several such folders hold texts, files
    beside them are of no class.
    """

    name = "text"

    @classmethod
    def detect(cls, path: Path) -> bool:
        if path.is_file():
            return suffix_of(path.name) in TEXT_SUFFIXES
        if not _files(path) and not has_class_folders(path, TEXT_SUFFIXES):
            return False
        # Texts lie beside data of every kind.
        has_images = any(suffix_of(name) in IMAGE_SUFFIXES for name in names_in(path))
        others = (EXAMPLE_FORMATS.get(name) for name in EXAMPLE_FORMATS.names() if name != cls.name)
        return not has_images and not any(other.detect(path) for other in others)

    @classmethod
    def looked_for(cls) -> str:
        return "a .txt file, or .txt files for each class"

    @classmethod
    def open(cls, path: Path, options: ExampleOptions) -> ExampleSet:
        files = _files_to_read(path)
        splits = {split_of_file(file.stem): file for file in files}
        if len(files) == 1:
            return open_corpus(path, {"train": read_utf8(files[0])}, options, format=cls.name)
        if "train" in splits and None not in splits and len(splits) == len(files):
            texts, unread = _read_splits({str(split): file for split, file in splits.items()})
            opened = open_corpus(path, texts, options, format=cls.name)
            return replace(opened, problems=(*unread, *opened.problems))
        if not files and not has_class_folders(path, TEXT_SUFFIXES):
            raise DataError(f"{path}: has no text files", advice=f"looked for {cls.looked_for()}")
        return _open_classes(path, files, options)


class _Text(NamedTuple):
    split: str
    label: str
    key: str
    text: str  # not empty


def _files_to_read(path: Path) -> list[Path]:
    """None where the texts are those in folders of classes."""
    if path.is_file():
        return [path]
    return [] if has_several_classes(path, TEXT_SUFFIXES) else _files(path)


def _files(folder: Path) -> list[Path]:
    """Texts in a folder, but for those about it."""
    names = (name for name in names_in(folder) if not name.startswith("."))
    return [folder / name for name in names if suffix_of(name) in TEXT_SUFFIXES and not _is_about(name)]


def _is_about(name: str) -> bool:
    return stem_of(name).lower() in _ABOUT


def _read_splits(files: Mapping[str, Path]) -> tuple[dict[str, str], list[Problem]]:
    """The texts by split, without splits that cannot be read, unless it is that to train on."""
    texts: dict[str, str] = {}
    problems: list[Problem] = []
    for split, file in files.items():
        try:
            texts[split] = read_utf8(file)
        except DataError as error:
            if split == "train":
                raise
            problems.append(unusable_split(split, file, error.message, "text-unreadable"))
    return texts, problems


def split_texts(content: str, unit: Unit) -> Iterator[tuple[int, str]]:
    """The texts that the content of a file is taken as, each with its line, from 1 on; none is empty."""
    parts = content.split("\n") if unit == "line" else [content]
    for number, part in enumerate(parts, start=1):
        if text := part.strip():
            yield number, text


def _open_classes(root: Path, files: Sequence[Path], options: ExampleOptions) -> ExampleSet:
    problems: list[Problem] = []
    unit: Unit = "line" if files else "file"
    if files:
        names = [file.stem for file in files]
        texts = list(_lines(root, files, problems))
    else:
        names = sorted({folder.label for folder in class_folders(root)})
        texts = list(_whole_files(root, problems))
    splits = {split: [text for text in texts if text.split == split] for split in {t.split for t in texts}}
    length = _length([text.text for text in texts], options)
    splits, made = _hold_out(root, names, splits, length=length, seed=options.seed)
    numbers = {name: number for number, name in enumerate(names)}
    encoding = _meaning_before(options) or fixed_length_vocabulary(
        (text.text[:length] for text in splits.get("train", ())), length=length, unit=unit
    )
    problems += (*made, *truncated_texts(str(root), ((t.key, t.text) for t in texts), length))
    parts = {
        split: LabeledArrays(
            inputs=encode_texts(encoding, [text.text for text in part]),
            labels=np.array([numbers[text.label] for text in part], dtype=np.int64),
            keys=[text.key for text in part],
        )
        for split, part in splits.items()
    }
    settled, examples = resolve_splits(root, names, parts, problems, eval_only=options.eval_only)
    return ExampleSet(
        root=root,
        format=TextFormat.name,
        kind="tokens",
        classes=settled.classes,
        shape=(length,),
        splits=examples,
        problems=(*problems, *settled.problems),
        encoding=encoding,
    )


def _meaning_before(options: ExampleOptions) -> Mapping[str, Any] | None:
    return options.encoding if options.encoding and "length" in options.encoding else None


def _length(texts: Sequence[str], options: ExampleOptions) -> int:
    """As before, or else with room for the longest of all."""
    before = _meaning_before(options)
    return int(before["length"]) if before else min(max(map(len, texts), default=0), options.length)


def _lines(root: Path, files: Iterable[Path], problems: list[Problem]) -> Iterator[_Text]:
    """Of files that are a class each; what cannot be read is added to `problems`."""
    for file in files:
        for number, text in split_texts(_read(root, file, problems), "line"):
            yield _Text("train", file.stem, f"{file.name}:{number}", text)


def _whole_files(root: Path, problems: list[Problem]) -> Iterator[_Text]:
    """Of folders that are a class each; what cannot be read or is empty is added to `problems`."""
    folders = class_folders(root)
    problems += (*unlistable_problems(root, "text-unreadable"), *stray_problems(root, folders))
    beside = files_outside_classes(root, folders, TEXT_SUFFIXES)
    problems += unclassified_problems(root, [file for file in beside if not _is_about(file.name)], "text")
    for folder in folders:
        for file in files_below(folder.path, TEXT_SUFFIXES):
            for _, text in split_texts(_read(root, file, problems), "file"):
                key = file.relative_to(root).as_posix()
                yield _Text(folder.split or "train", folder.label, key, text)


def _read(root: Path, file: Path, problems: list[Problem]) -> str:
    """Empty if it cannot be read."""
    what, text = "has no text", ""
    try:
        text = read_utf8(file)
    except DataError as error:
        what = error.message.removeprefix(f"{file}: ")
    if not text.strip():
        place = file.relative_to(root).as_posix()
        problems.append(Problem(kind="text-unreadable", file=place, what=what, action="left out"))
    return text


def _hold_out(
    root: Path, names: Sequence[str], splits: dict[str, list[_Text]], *, length: int, seed: int
) -> tuple[dict[str, list[_Text]], tuple[Problem, ...]]:
    """With a validation split, made where there is none. Texts that are equal once they are cut stay
    together: what is measured must not have been trained on.
    """
    train = splits.get("train", [])
    if not train or "val" in splits:
        return splits, ()
    labels = np.array([names.index(text.label) for text in train], dtype=np.int64)
    chosen = hold_out_mask([text.text[:length] for text in train], labels, seed=seed)
    if not chosen.any():
        return splits, ()
    divided: dict[str, list[_Text]] = {"train": [], "val": []}
    for text, is_held in zip(train, chosen.tolist(), strict=True):
        divided["val" if is_held else "train"].append(text)
    return {**splits, **divided}, made_split_problem(root, chosen, seed=seed)


def truncated_texts(place: str, texts: Iterable[tuple[str, str]], length: int) -> tuple[Problem, ...]:
    """That some of a place are too long, if so. `texts`: each with its key before it."""
    keys = [key for key, text in texts if len(text) > length]
    if not keys:
        return ()
    count = len(keys)
    what = f"{counted(count, 'text')} cut to length={length}; the first: {keys[0]}"
    return (
        Problem(kind="text-cut", file=place, what=what, value=str(count), action="repaired", count=count),
    )
