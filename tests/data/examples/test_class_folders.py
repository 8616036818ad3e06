"""Folders that another user keeps to himself. As root, who may look anywhere, the tests become nobody."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from boxcrew.data.examples.class_folders import class_folders, has_class_folders, unlistable_problems
from boxcrew.data.examples.example_set import ExampleOptions, open_examples
from boxcrew.data.folders import files_below, names_in
from tests.helpers.made_examples import write_classes

NOBODY = 65534


@pytest.fixture
def root() -> Iterator[Path]:
    """Where nobody may look, unlike below `tmp_path`."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextlib.contextmanager
def closed(*folders: Path) -> Iterator[None]:
    """To who runs this, or to nobody where that is root."""
    for folder in folders:
        folder.chmod(0)
    before = os.geteuid()
    os.seteuid(NOBODY if before == 0 else before)
    try:
        yield
    finally:
        os.seteuid(before)


def write_texts(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)
        for index in range(5):
            (folder / name / f"{index}.txt").write_text(f"{name} {index}")


def test_a_folder_that_cannot_be_listed_is_as_if_empty(root: Path) -> None:
    write_texts(root, "a", "b/c", "b/d")
    with closed(root / "a", root / "b" / "c"):
        assert names_in(root / "a") == []
        assert len(files_below(root, {".txt"})) == 5
        assert [folder.label for folder in class_folders(root)] == ["a", "b"]
        assert not has_class_folders(root, {".txt"})
        problems = unlistable_problems(root, "text-unreadable")
    assert [(problem.file, problem.action) for problem in problems] == [
        ("a", "left out"),
        ("b/c", "left out"),
    ]
    assert {problem.message for problem in problems} == {"cannot be listed: Permission denied"}


def test_a_folder_that_may_be_listed_but_not_entered(root: Path) -> None:
    write_texts(root, "a/b")
    with closed():
        assert [folder.label for folder in class_folders(root / "a")] == ["b"]
    (root / "a").chmod(0o444)
    with closed():
        assert class_folders(root / "a") == []


def test_images_are_read_from_the_other_folders(root: Path) -> None:
    write_classes(root, {"cat": 5, "dog": 5, "lost+found": 1})
    open_examples(root, ExampleOptions())  # imports what nobody may not
    with closed(root / "lost+found"):
        opened = open_examples(root, ExampleOptions())
    assert opened.classes == ("cat", "dog")
    (problem,) = [problem for problem in opened.problems if problem.kind == "unreadable-image"]
    assert str(problem) == "lost+found: cannot be listed: Permission denied (left out)"


def test_texts_are_read_from_the_other_folders(root: Path) -> None:
    write_texts(root, "pos", "neg", "lost+found", "pos/of others")
    open_examples(root, ExampleOptions())  # imports what nobody may not
    with closed(root / "lost+found", root / "pos" / "of others"):
        opened = open_examples(root, ExampleOptions())
    assert opened.classes == ("neg", "pos")
    files = [problem.file for problem in opened.problems if problem.kind == "text-unreadable"]
    assert files == ["lost+found", "pos/of others"]
