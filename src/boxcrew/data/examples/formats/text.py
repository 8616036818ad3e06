"""Text files: running text for language models, or texts to classify."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.units import counted
from boxcrew.data.checks.problem import Problem
from boxcrew.data.examples.alphabet import Unit, encode_texts, fixed_length_vocabulary
from boxcrew.data.examples.class_folders import (
    class_folders,
    has_class_folders,
    has_several_classes,
    outside_problems,
    unlistable_problems,
)
from boxcrew.data.examples.corpus import open_corpus
from boxcrew.data.examples.example_set import (
    EXAMPLE_FORMATS,
    ExampleFormat,
    ExampleOptions,
    ExampleSet,
    InMemory,
)
from boxcrew.data.examples.labeled import hold_out, resolve_splits, unusable_split
from boxcrew.data.folders import files_below, names_in, read_utf8, split_of_file, stem_of, suffix_of
from boxcrew.data.images.reading import IMAGE_SUFFIXES

TEXT_SUFFIXES = frozenset({".txt"})
_ABOUT = frozenset({"classes", "copying", "copyright", "labels", "licence", "license", "notice", "readme"})
"""Names (lower case) of files about the data, which are not part of it."""


@EXAMPLE_FORMATS.register("text")
class TextFormat(ExampleFormat):
    """Running text: one file, or files named after splits. Texts to classify: several files, each a class
    with one sample a line, or class folders with one sample a file; files beside these are left out.
    """

    name = "text"
    expects = "a .txt file, or .txt files for each class"

    @classmethod
    def detect(cls, path: Path) -> bool:
        if path.is_file():
            return suffix_of(path.name) in TEXT_SUFFIXES
        if not _files(path) and not has_class_folders(path, TEXT_SUFFIXES):
            return False
        # Text files also lie beside data of other formats.
        has_images = any(suffix_of(name) in IMAGE_SUFFIXES for name in names_in(path))
        others = (EXAMPLE_FORMATS.get(name) for name in EXAMPLE_FORMATS.names() if name != cls.name)
        return not has_images and not any(other.detect(path) for other in others)

    @classmethod
    def open(cls, path: Path, options: ExampleOptions) -> ExampleSet:
        in_class_folders = path.is_dir() and has_several_classes(path, TEXT_SUFFIXES)
        files = [path] if path.is_file() else [] if in_class_folders else _files(path)
        splits = {split_of_file(file.stem): file for file in files}
        if len(files) == 1:
            return open_corpus(path, {"train": read_utf8(files[0])}, options, format=cls.name, problems=[])
        if "train" in splits and None not in splits and len(splits) == len(files):
            texts, problems = _read_splits({str(split): file for split, file in splits.items()})
            return open_corpus(path, texts, options, format=cls.name, problems=problems)
        if not files and not has_class_folders(path, TEXT_SUFFIXES):
            raise DataError(f"{path}: has no text files", advice=f"looked for {cls.expects}")
        return _open_classes(path, files, options)


class _Text(NamedTuple):
    split: str
    label: str
    key: str
    text: str  # not empty


def _files(folder: Path) -> list[Path]:
    """Return the text files of a folder, without those about the data."""
    names = (name for name in names_in(folder) if not name.startswith("."))
    return [folder / name for name in names if suffix_of(name) in TEXT_SUFFIXES and not _is_about(name)]


def _is_about(name: str) -> bool:
    return stem_of(name).lower() in _ABOUT


def _read_splits(files: Mapping[str, Path]) -> tuple[dict[str, str], list[Problem]]:
    """Read the texts by split. Splits other than training that cannot be read become problems."""
    texts, problems = dict[str, str](), list[Problem]()
    for split, file in files.items():
        try:
            texts[split] = read_utf8(file)
        except DataError as error:
            if split == "train":
                raise
            problems.append(unusable_split(split, file, error.message, "text-unreadable"))
    return texts, problems


def split_texts(content: str, unit: Unit) -> Iterator[tuple[int, str]]:
    """Yield the samples of a text file, each with its line (from 1); empty ones are skipped."""
    parts = content.split("\n") if unit == "line" else [content]
    for number, part in enumerate(parts, start=1):
        if text := part.strip():
            yield number, text


def _open_classes(root: Path, files: Sequence[Path], options: ExampleOptions) -> ExampleSet:
    problems: list[Problem] = []
    unit: Unit = "line" if files else "file"
    texts = list(_lines(root, files, problems) if files else _files_of_classes(root, problems))
    names = [file.stem for file in files] or sorted({folder.label for folder in class_folders(root)})
    known = options.encoding if options.encoding and "length" in options.encoding else None
    longest = max((len(text.text) for text in texts), default=0)
    length = int(known["length"]) if known else min(longest, options.length)

    def cut(samples: InMemory) -> list[str]:
        return [text[:length] for text in samples.inputs]

    # Keyed by their truncated text, so that texts which become equal inputs stay in one split.
    splits = hold_out(root, _by_split(texts, names), cut, problems, seed=options.seed)
    train = cut(splits["train"]) if "train" in splits else ()
    vocabulary = known or fixed_length_vocabulary(train, length=length, unit=unit)
    problems += truncated_texts(str(root), ((text.key, text.text) for text in texts), length)
    encoded = {
        split: InMemory(encode_texts(vocabulary, samples.inputs.tolist()), samples.labels, samples.keys)
        for split, samples in splits.items()
    }
    eval_only = options.eval_only
    classes, examples, absent = resolve_splits(root, names, encoded, problems, eval_only=eval_only)
    name, shape, reported = TextFormat.name, (length,), (*problems, *absent)
    return ExampleSet(root, name, "tokens", classes, shape, examples, problems=reported, encoding=vocabulary)


def _by_split(texts: Sequence[_Text], names: Sequence[str]) -> dict[str, InMemory]:
    """Return the samples of each split; their inputs are the texts themselves."""
    splits, numbers = {}, {name: number for number, name in enumerate(names)}
    for split in sorted({text.split for text in texts}):
        chosen = [text for text in texts if text.split == split]
        labels = np.array([numbers[text.label] for text in chosen], dtype=np.int64)
        inputs = np.array([text.text for text in chosen], dtype=np.object_)
        splits[split] = InMemory(inputs, labels, [text.key for text in chosen])
    return splits


def _lines(root: Path, files: Iterable[Path], problems: list[Problem]) -> Iterator[_Text]:
    """Yield the lines of files that are a class each. Unreadable files are added to `problems`."""
    for file in files:
        for number, text in split_texts(_read(root, file, problems), "line"):
            yield _Text("train", file.stem, f"{file.name}:{number}", text)


def _files_of_classes(root: Path, problems: list[Problem]) -> Iterator[_Text]:
    """Yield the files of class folders. Unreadable and empty files are added to `problems`."""
    folders = class_folders(root)
    problems += unlistable_problems(root, "text-unreadable")
    problems += outside_problems(root, folders, TEXT_SUFFIXES, "text", ignored=_is_about)
    for folder in folders:
        for file in files_below(folder.path, TEXT_SUFFIXES):
            if text := _read(root, file, problems).strip():
                yield _Text(folder.split or "train", folder.label, file.relative_to(root).as_posix(), text)


def _read(root: Path, file: Path, problems: list[Problem]) -> str:
    """Return the content; empty, with a problem, if it cannot be read."""
    message, text = "has no text", ""
    try:
        text = read_utf8(file)
    except DataError as error:
        message = error.message.removeprefix(f"{file}: ")
    if not text.strip():
        problems.append(Problem("text-unreadable", file.relative_to(root).as_posix(), message, "left out"))
    return text


def truncated_texts(source: str, texts: Iterable[tuple[str, str]], length: int) -> tuple[Problem, ...]:
    """Report how many texts of `source`, given as (key, text), exceed `length`; nothing if none does."""
    keys = [key for key, text in texts if len(text) > length]
    if not keys:
        return ()
    message = f"{counted(len(keys), 'text')} cut to length={length}; the first: {keys[0]}"
    return (Problem("text-cut", source, message, "repaired", value=str(len(keys)), count=len(keys)),)
