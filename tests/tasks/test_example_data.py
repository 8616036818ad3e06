"""The data of a network's training decides what it can be evaluated on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.config import Tree
from boxcrew.core.errors import DataError
from boxcrew.data.config import DataConfig
from boxcrew.data.images.reading import write_image
from boxcrew.tasks.base import TASKS
from boxcrew.tasks.data import OpenOptions
from boxcrew.tasks.example_data import ExampleData
from boxcrew.tasks.facts import ExampleFacts
from boxcrew.testing.task_data import written
from tests.helpers.made_examples import draw_blocks, make_csv, make_text, write_classes


def opened(name: str, place: Path, facts: ExampleFacts | None = None, **settings: object) -> ExampleData:
    kind = TASKS.get(name)
    tree: Tree = {"name": name, **settings}
    opening = OpenOptions(data=DataConfig(path=str(place)), seed=0)
    task_data = kind.open(kind.config_class.of(tree), opening, facts and written(facts))
    assert isinstance(task_data, ExampleData)
    return task_data


def write_pictures(folder: Path) -> Path:
    write_classes(folder, {"bowl": 10, "cup": 10})
    return folder


def write_words(folder: Path) -> Path:
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text("".join(f"{name}{index}\n" for index in range(30)))
    return folder


def refused(name: str, place: Path, facts: ExampleFacts, **settings: object) -> str:
    with pytest.raises(DataError) as raised:
        opened(name, place, facts, **settings)
    assert str(place) in raised.value.message
    assert raised.value.advice
    return raised.value.message


def test_data_of_another_kind_is_refused(tmp_path: Path) -> None:
    facts = opened("classification", write_pictures(tmp_path / "pictures")).facts
    message = refused("classification", make_csv(tmp_path), facts)
    assert "holds numbers, but the network was trained on images" in message


def test_text_of_the_other_sort_is_refused(tmp_path: Path) -> None:
    words, book = write_words(tmp_path / "words"), make_text(tmp_path)
    message = refused("sequence", book, opened("sequence", words).facts)
    assert "holds running text, but the network was trained on texts of classes" in message
    message = refused("sequence", words, opened("sequence", book).facts)
    assert "holds texts of classes, but the network was trained on running text" in message


def test_inputs_of_another_shape_are_refused(tmp_path: Path) -> None:
    book = make_text(tmp_path)
    message = refused("sequence", book, opened("sequence", book, length=16).facts, length=32)
    assert "has inputs of 33, but the network was trained on 17" in message


def test_pictures_become_as_large_as_those_that_were_learned_from(tmp_path: Path) -> None:
    facts = opened("classification", write_pictures(tmp_path / "pictures")).facts
    assert facts.shape == (30, 40, 3)
    for name in ("bowl", "cup"):
        (tmp_path / "other" / name).mkdir(parents=True)
        for index in range(5):
            image = draw_blocks(index, width=50 + 10 * index, height=20)
            write_image(tmp_path / "other" / name / f"{index}.png", image)
    task_data = opened("classification", tmp_path / "other", facts)
    assert task_data.val.fetch([0]).inputs.shape == (1, 30, 40, 3)
    assert "image-resized" not in {problem.kind for problem in task_data.problems}


def test_a_single_class_can_be_examined(tmp_path: Path) -> None:
    facts = opened("classification", write_pictures(tmp_path / "pictures")).facts
    write_classes(tmp_path / "other", {"cup": 10})
    task_data = opened("classification", tmp_path / "other", facts)
    assert task_data.examples.classes == ("bowl", "cup")
    assert set(task_data.val.labels.tolist()) == {1}
    write_classes(tmp_path / "third", {"plate": 10})
    assert "does not know: plate" in refused("classification", tmp_path / "third", facts)


def test_pictures_are_measured_once(tmp_path: Path) -> None:
    task_data = opened("classification", write_pictures(tmp_path / "pictures"))
    facts = task_data.facts
    for file in (tmp_path / "pictures").rglob("*.png"):
        file.unlink()
    assert task_data.facts == facts
    assert task_data.with_cache(10**6).facts == facts
    assert facts.mean is not None
    assert np.isfinite(facts.mean).all()
