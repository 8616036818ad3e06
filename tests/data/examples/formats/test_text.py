from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.examples.alphabet import decode_tokens, encode_text, num_tokens
from boxcrew.data.examples.example_set import ExampleOptions, ExampleSet, ExampleSplit, open_examples
from boxcrew.data.examples.formats.text import TextFormat
from tests.helpers.made_examples import make_crops, make_folder, make_idx


def whole(part: ExampleSplit) -> np.ndarray:
    return part.fetch(range(len(part))).inputs


def texts(opened: ExampleSet, split: str) -> list[str]:
    return [decode_tokens(opened.encoding, tokens) for tokens in whole(opened.split(split))]


def kinds(opened: ExampleSet) -> list[tuple[str, str, str]]:
    return [(problem.kind, problem.file, problem.action) for problem in opened.problems]


def refused(path: Path, options: ExampleOptions | None = None) -> DataError:
    with pytest.raises(DataError) as raised:
        open_examples(path, options or ExampleOptions())
    assert str(path) in raised.value.message
    assert raised.value.advice
    return raised.value


def test_running_text_becomes_windows(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    text = "".join(chr(ord("a") + index % 23) for index in range(1000))
    file.write_text(text)
    opened = open_examples(file, ExampleOptions(length=20))
    assert (opened.kind, opened.classes, opened.shape) == ("tokens", (), (21,))
    assert opened.encoding["alphabet"] == "abcdefghijklmnopqrstuvw"
    assert num_tokens(opened.encoding) == 24
    train = texts(opened, "train")
    assert train == [text[start : start + 21] for start in range(0, 880, 10)]
    val = texts(opened, "val")
    assert val == [text[900 + start : 921 + start] for start in range(0, 80, 20)]
    target_text = "".join(window[1:] for window in val)
    assert target_text == text[901:981]  # none twice; the last 19 fill no window
    assert opened.split("val").key(2) == "val[40]"
    assert kinds(opened) == [("made-split", str(file), "noted")]
    assert "the last 100 of its 1000 characters" in opened.problems[0].message


def test_characters_of_validation_that_training_lacks_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcdefghij" * 9 + "abcdeéghij")
    opened = open_examples(tmp_path, ExampleOptions(length=9))
    assert texts(opened, "val") == ["abcde\ufffdghij"]
    assert whole(opened.split("val"))[0, 5] == 0
    assert whole(opened.split("train")).min() == 1


def test_files_named_like_splits_are_the_splits_of_a_text(tmp_path: Path) -> None:
    for name, text in (("ptb.train", "abcd" * 30), ("ptb.valid", "dcba" * 20), ("ptb.test", "bbbb" * 10)):
        (tmp_path / f"{name}.txt").write_text(text)
    (tmp_path / "README.txt").write_text("about it")
    opened = open_examples(tmp_path, ExampleOptions(length=10))
    assert list(opened.splits) == ["train", "val", "test"]
    assert opened.problems == ()
    assert set("".join(texts(opened, "test"))) == {"b"}


def test_texts_that_are_too_short_or_empty_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("x" * 50)
    error = refused(file, ExampleOptions(length=25))
    assert "has only 50 characters, but length=25 needs 52" in error.message
    assert "length=24 at most" in error.advice
    assert len(open_examples(file, ExampleOptions(length=24)).split("val")) == 1
    file.write_text(" \n\n")
    assert "has no text to train on" in refused(file).message


def test_a_split_that_is_too_short_is_left_out(tmp_path: Path) -> None:
    for name, length in (("train", 100), ("val", 30), ("test", 10)):
        (tmp_path / f"{name}.txt").write_text("x" * length)
    opened = open_examples(tmp_path, ExampleOptions(length=10))
    assert list(opened.splits) == ["train", "val"]
    (problem,) = opened.problems
    assert (problem.kind, problem.where, problem.action) == ("text-short", f"{tmp_path} test", "left out")
    assert problem.message == "has only 10 characters, but length=10 needs 11"
    longer = open_examples(tmp_path, ExampleOptions(length=30))
    assert list(longer.splits) == ["train", "val"]  # of what is to train on, as if there were no other
    assert [problem.kind for problem in longer.problems] == ["text-short", "text-short", "made-split"]
    assert (
        "has only 100 characters, but length=100 needs 202"
        in refused(tmp_path, ExampleOptions(length=100)).message
    )
    (tmp_path / "val.txt").write_text("x" * 200)
    assert "the text of train has only 100" in refused(tmp_path, ExampleOptions(length=100)).message


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_split_that_cannot_be_read_is_left_out(tmp_path: Path, split: str) -> None:
    (tmp_path / "train.txt").write_text("abcd" * 30)
    file = tmp_path / f"{split}.txt"
    file.write_bytes("Größe".encode("latin-1") * 100)
    opened = open_examples(tmp_path, ExampleOptions(length=10))
    problem, made = opened.problems
    assert (problem.kind, problem.file, problem.at, problem.action) == (
        "text-unreadable",
        file.name,
        split,
        "left out",
    )
    assert problem.message == "is not UTF-8: byte 0xf6 at offset 2"
    assert made.kind == "made-split"
    assert list(opened.splits) == ["train", "val"]
    file.unlink()
    file.mkdir()
    assert (
        open_examples(tmp_path, ExampleOptions(length=10)).problems[0].message
        == "cannot be read: Is a directory"
    )


def test_running_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes("Größe".encode("latin-1") * 100)
    assert "is not UTF-8: byte 0xf6 at offset 2" in refused(file).message
    file.rename(tmp_path / "train.txt")
    (tmp_path / "val.txt").write_text("abcd" * 100)
    assert str(tmp_path / "train.txt") in refused(tmp_path).message


def write_names(folder: Path) -> None:
    (folder / "one.txt").write_text("\n".join(f"a{'b' * index}" for index in range(20)) + "\n\n")
    (folder / "two.txt").write_text("\r\n".join(f"c{'d' * index}" for index in range(20)))


def test_of_several_files_each_is_a_class_and_a_line_an_example(tmp_path: Path) -> None:
    write_names(tmp_path)
    opened = open_examples(tmp_path, ExampleOptions())
    assert (opened.classes, opened.shape) == (("one", "two"), (20,))
    assert {name: len(part) for name, part in opened.splits.items()} == {"train": 32, "val": 8}
    for split, part in opened.splits.items():
        for text, label, key in zip(
            texts(opened, split), part.labels, [part.key(i) for i in range(len(part))], strict=True
        ):
            assert text[0] == "ac"[label]
            assert key == f"{opened.classes[label]}.txt:{len(text)}"
    assert num_tokens(opened.encoding) == 6
    assert opened.encoding["unit"] == "line"
    row = encode_text(opened.encoding, "axb")
    assert row.tolist() == [2, 1, 3] + [0] * 17


def test_equal_texts_are_in_one_split(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text("".join(f"{name}{index % 30}\n" for index in range(300)))
    opened = open_examples(tmp_path, ExampleOptions())
    assert not set(texts(opened, "train")) & set(texts(opened, "val"))
    assert len(opened.split("val")) == 120


def test_texts_that_are_equal_once_they_are_cut_are_in_one_split(tmp_path: Path) -> None:
    for name in ("one", "two"):
        lines = "".join(f"{name}{index % 30:02d}{index}\n" for index in range(300))
        (tmp_path / f"{name}.txt").write_text(lines)
    before = {"alphabet": "0123456789enotw", "unknown": 1, "length": 5}
    for options in (ExampleOptions(length=5), ExampleOptions(encoding=before)):
        opened = open_examples(tmp_path, options)
        assert opened.shape == (5,)
        assert not set(texts(opened, "train")) & set(texts(opened, "val"))
        assert len(opened.split("val")) == 120


def test_long_texts_are_cut_and_counted_once(tmp_path: Path) -> None:
    write_names(tmp_path)
    opened = open_examples(tmp_path, ExampleOptions(length=15))
    assert opened.shape == (15,)
    (problem,) = [problem for problem in opened.problems if problem.kind == "text-cut"]
    assert problem.message.startswith("10 texts cut to length=15")
    assert problem.action == "repaired"
    assert len(encode_text(opened.encoding, "a" * 40)) == 15


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    for name in ("pos", "neg"):
        (tmp_path / name).mkdir()
        for index in range(6):
            (tmp_path / name / f"{index}.txt").write_text(f"{name}\n{index}\n")
    (tmp_path / "neg" / "bad.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "neg" / "none.txt").write_text("\n")
    opened = open_examples(tmp_path, ExampleOptions())
    assert opened.classes == ("neg", "pos")
    assert sum(len(part) for part in opened.splits.values()) == 12
    assert set(kinds(opened)) == {
        ("text-unreadable", "neg/bad.txt", "left out"),
        ("text-unreadable", "neg/none.txt", "left out"),
        ("made-split", str(tmp_path), "noted"),
    }
    assert opened.encoding["unit"] == "file"
    assert all(text[:3] in {"pos", "neg"} and text[3] == "\n" for text in texts(opened, "train"))


def test_folders_of_splits_with_folders_of_classes(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for name in ("pos", "neg"):
            (tmp_path / split / name).mkdir(parents=True)
            for index in range(5):
                (tmp_path / split / name / f"{index}.txt").write_text(f"{split} {name} {index}")
    (tmp_path / "train" / "loose.txt").write_text("of no class")
    (tmp_path / "test" / "README.txt").write_text("about it")
    opened = open_examples(tmp_path, ExampleOptions())
    assert ("label-missing", "train/loose.txt", "left out") in kinds(opened)
    assert {name: len(part) for name, part in opened.splits.items()} == {"train": 8, "val": 2, "test": 10}
    assert all(text.startswith("test") for text in texts(opened, "test"))
    assert all(text.startswith("train") for text in texts(opened, "val"))


def write_reviews(folder: Path) -> None:
    for name in ("pos", "neg"):
        (folder / name).mkdir(parents=True)
        for index in range(5):
            (folder / name / f"{index}.txt").write_text(f"{folder.name} {name} {index}")


def test_texts_beside_folders_of_classes_are_of_none(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_reviews(tmp_path / "divided" / split)
    write_reviews(tmp_path / "flat")
    for names in (("imdbEr",), ("notes", "todo"), ("train", "val")):
        for root in (tmp_path / "divided", tmp_path / "flat"):
            for name in names:
                (root / f"{name}.txt").write_text("0.5\n" * 500)
            opened = open_examples(root, ExampleOptions())
            assert (opened.classes, opened.encoding["unit"]) == (("neg", "pos"), "file")
            assert ("label-missing", f"{names[0]}.txt", "left out") in kinds(opened)
            for name in names:
                (root / f"{name}.txt").unlink()


def test_a_text_beside_one_folder_with_texts_is_to_be_continued(tmp_path: Path) -> None:
    (tmp_path / "tea.txt").write_text("abcd" * 100)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("more tea")
    assert open_examples(tmp_path, ExampleOptions()).classes == ()


def test_texts_anywhere_below_the_folders_of_classes(tmp_path: Path) -> None:
    for name in ("pos", "neg"):
        for index in range(5):
            (tmp_path / name / f"by{index}").mkdir(parents=True)
            (tmp_path / name / f"by{index}" / "1.txt").write_text(f"{name} {index}")
    opened = open_examples(tmp_path, ExampleOptions())
    assert (opened.classes, opened.encoding["unit"]) == (("neg", "pos"), "file")


def test_a_class_of_which_nothing_can_be_read_is_dropped(tmp_path: Path) -> None:
    write_names(tmp_path)
    (tmp_path / "three.txt").write_bytes(b"\xff" * 10)
    opened = open_examples(tmp_path, ExampleOptions())
    assert opened.classes == ("one", "two")
    assert ("class-empty", str(tmp_path), "noted") in kinds(opened)


def test_what_is_only_in_another_split_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "val" / name).mkdir(parents=True)
        (tmp_path / "val" / name / "1.txt").write_text(name)
    assert "has nothing to train on" in refused(tmp_path).message


def test_other_sets_with_text_files_are_none(tmp_path: Path) -> None:
    for name, make in (("idx", make_idx), ("folder", make_folder), ("crops", make_crops)):
        (tmp_path / name).mkdir()
        folder = make(tmp_path / name)
        (folder / "notes.txt").write_text("something")
        (folder / "README.txt").write_text("about it")
        assert not TextFormat.detect(folder)
        assert open_examples(folder, ExampleOptions()).format == name


def test_surnames(shared_data: Path) -> None:
    opened = open_examples(shared_data / "text" / "names", ExampleOptions())
    assert len(opened.classes) == 18
    assert {"made-split"} == {problem.kind for problem in opened.problems}
    assert not set(texts(opened, "train")) & set(texts(opened, "val"))
    assert 0.19 < len(opened.split("val")) / 20_050 < 0.21


def test_tinyshakespeare(shared_data: Path) -> None:
    opened = open_examples(shared_data / "text" / "tinyshakespeare", ExampleOptions(length=128))
    assert len(opened.encoding["alphabet"]) == 65
    assert texts(opened, "train")[0].startswith("First Citizen:\nBefore we proceed")
    assert len(opened.split("val")) == 111_538 // 128


def test_texts_are_made_like_those_of_a_set_before(tmp_path: Path) -> None:
    (tmp_path / "now").mkdir()
    write_names(tmp_path / "now")
    before = {"alphabet": "abx", "unknown": 1, "length": 7}
    opened = open_examples(tmp_path / "now", ExampleOptions(encoding=before))
    assert (opened.shape, opened.encoding) == ((7,), before)
    (problem,) = [problem for problem in opened.problems if problem.kind == "text-cut"]
    assert problem.value == "26"
    part = opened.split("train")
    for row, label in zip(whole(part), part.labels, strict=True):
        assert set(row.tolist()) <= ({0, 2, 3} if label == 0 else {0, 1})
    learned = open_examples(tmp_path / "now", ExampleOptions(encoding={"alphabet": "x", "unknown": 0}))
    assert learned.encoding["alphabet"] == "abcd"  # what was before is not of the same sort


def test_running_text_is_made_like_that_of_a_set_before(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc" * 100)
    before = {"alphabet": "bx", "unknown": 0}
    opened = open_examples(tmp_path, ExampleOptions(length=5, encoding=before))
    assert opened.encoding == before
    assert whole(opened.split("train"))[0].tolist() == [0, 1, 0, 0, 1, 0]
    assert open_examples(tmp_path, ExampleOptions(length=5, encoding={})).encoding["alphabet"] == "abc"
