"""Classifiers, language models and generators from Python, untrained: what they learn is tested elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from boxcrew import Classifier, Detector, Generator, TextModel
from boxcrew.api.model import CLASSES as CLASS_NAMES
from boxcrew.api.model import Model
from boxcrew.core.errors import DataError, UsageError
from boxcrew.data.images.reading import read_image
from boxcrew.tasks.base import PredictionKind
from tests.helpers.made_examples import make_csv, write_classes
from tests.helpers.untrained import untrained_run

CLASSES: tuple[type[Model[Any]], ...] = (Detector, Classifier, TextModel, Generator)
TEXT = "the tea is on the shelf, and the cup is beside it. "

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and an untrained run of each kind: goods, table, words, talk, gan."""
    folder = tmp_path_factory.mktemp("models")
    write_classes(folder / "photos", {"bowl": 4, "cup": 4})
    (folder / "tea.txt").write_text(TEXT * 10)
    (folder / "lines").mkdir()
    for name, letter in (("one", "a"), ("two", "b")):
        (folder / "lines" / f"{name}.txt").write_text("".join(f"{letter * n}\n" for n in range(1, 20)))
    fc = {"name": "classification", "net": {"name": "fc", "widths": [8]}}
    rnn = {"name": "sequence", "net": {"hidden": 8, "initializer": "he"}, "length": 16}
    gan = {"name": "gan", "size": 28, "width": 4, "latent": 6, "initializer": "he"}
    for name, task, data in (
        ("goods", fc, folder / "photos"),
        ("table", fc, make_csv(folder)),
        ("words", rnn, folder / "lines"),
        ("talk", rnn, folder / "tea.txt"),
        ("gan", gan, folder / "photos"),
    ):
        untrained_run(folder / name, {"task": task, "data": str(data)})
    return folder


def test_each_says_what_it_is(folder: Path) -> None:
    assert repr(Classifier.load(folder / "goods")) == f"Classifier(fc, 2 classes, {folder / 'goods'})"
    assert repr(TextModel.load(folder / "talk")) == f"TextModel(rnn, {folder / 'talk'})"
    assert repr(Generator.load(folder / "gan")) == f"Generator(gan with hinge loss, {folder / 'gan'})"


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        ("goods", "classes"),
        ("table", "classes"),
        ("words", "classes"),
        ("talk", "text"),
        ("gan", "images"),
    ],
)
def test_a_run_of_another_kind_is_refused_with_the_right_class(
    folder: Path, run: str, kind: PredictionKind
) -> None:
    for offered in CLASSES:
        if offered.predicts == kind:
            assert offered.load(folder / run).path == folder / run
            continue
        with pytest.raises(UsageError) as error:
            offered.load(folder / run)
        noun, name = CLASS_NAMES[kind]
        assert error.value.message == f"{folder / run} is {noun}: use boxcrew.{name}"


def test_a_recipe_of_another_kind_is_refused_before_training(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"^recipe fc trains a classifier: use boxcrew\.Classifier$"):
        Detector.train("fc", data=folder / "photos")
    with pytest.raises(UsageError, match=r"^recipe rnn trains a classifier: use boxcrew\.Classifier$"):
        TextModel.train(data=folder / "lines")
    with pytest.raises(UsageError, match=r"^recipe rnn trains a language model: use boxcrew\.TextModel$"):
        Classifier.train("rnn", data=folder / "tea.txt")
    assert list(tmp_path.iterdir()) == []


def test_train_and_val_from_python(folder: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"verbose": False, "steps": 1, "batch": 2, "loader": {"workers": 0}}
    classifier = Classifier.train("fc", data=folder / "photos", out=tmp_path / "fc", **options)
    assert classifier.classes == ("bowl", "cup")
    assert 0 <= classifier.val()["numbers"]["accuracy"] <= 1
    model = TextModel.train(data=folder / "tea.txt", out=tmp_path / "rnn", length=16, **options)
    assert model.val(batch=4)["numbers"]["perplexity"] > 1


@pytest.fixture(scope="module")
def photo(folder: Path) -> Path:
    return sorted((folder / "photos" / "cup").iterdir())[0]


def test_a_classifier_of_images_takes_any_form_of_them(folder: Path, photo: Path) -> None:
    classifier = Classifier.load(folder / "goods")
    expected = classifier.predict(photo)
    assert expected.source == str(photo)
    assert expected.probabilities.sum() == pytest.approx(1)
    assert expected.name == classifier.classes[int(expected.probabilities.argmax())]
    assert expected.to_json()["classes"][0] == {"name": expected.name, "probability": expected.probability}
    pixels = read_image(photo)
    for image in (pixels, Pillow.fromarray(pixels)):
        result = classifier(image)
        assert result.source is None
        np.testing.assert_array_equal(result.probabilities, expected.probabilities)
    results = classifier.predict(image for image in (pixels, photo))
    assert [result.source for result in results] == [None, str(photo)]
    with pytest.raises(UsageError, match="dict is not an image"):
        classifier.predict({"height": 1})


def test_classes_of_many_images_equal_those_of_one_by_one(folder: Path, tmp_path: Path) -> None:
    """To 1e-6: matrix products of another batch size add in another order."""
    classifier = Classifier.load(folder / "goods")
    results = list(classifier.predict_many(folder / "photos", batch=3))
    assert len(results) == 8
    for result in results:
        assert result.source is not None
        alone = classifier.predict(result.source)
        np.testing.assert_allclose(result.probabilities, alone.probabilities, rtol=0, atol=1e-6)
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"not a photo")
    warnings: list[str] = []
    assert list(classifier.predict_many([broken], warn=warnings.append)) == []
    assert warnings == [f"left out: {broken}: not an image of a known kind"]


def test_a_classifier_of_rows_takes_mappings_and_tables(folder: Path, tmp_path: Path) -> None:
    classifier = Classifier.load(folder / "table")
    (tmp_path / "new.csv").write_text("color,height\ngreen,12.5\n")
    (row,) = classifier.predict_many(tmp_path / "new.csv")
    assert row.source == f"{tmp_path / 'new.csv'}:2"
    result = classifier.predict({"height": 12.5, "color": "green", "kind": "?"})
    np.testing.assert_array_equal(result.probabilities, row.probabilities)
    assert len(classifier.predict([{"height": 1, "color": "red"}, {"height": None, "color": "red"}])) == 2
    with pytest.raises(DataError, match="the row has no 'color', which training used"):
        classifier.predict({"height": 12.5})
    with pytest.raises(UsageError, match=r"this classifier takes rows \(values by column name\), not str"):
        classifier.predict("new.csv")


def test_a_classifier_of_texts_takes_the_text_itself(folder: Path, tmp_path: Path) -> None:
    classifier = Classifier.load(folder / "words")
    (tmp_path / "new.txt").write_text("aab\nb\n")
    lines = list(classifier.predict_many(str(tmp_path / "new.txt")))
    texts = classifier.predict(["aab", "b"])
    for line, text in zip(lines, texts, strict=True):
        np.testing.assert_array_equal(line.probabilities, text.probabilities)
    with pytest.raises(UsageError, match="this classifier takes texts, not dict"):
        classifier.predict({"text": "aab"})


def test_a_text_is_continued(folder: Path) -> None:
    model = TextModel.load(folder / "talk")
    more = model.predict("the cup", num=30, seed=3)
    assert len(more) == 30
    assert model("the cup", num=30, seed=3) == more
    assert model.predict("the cup", num=30, seed=4) != more
    with pytest.warns(UserWarning, match="the text has 1 character that the model does not know"):
        model.predict("the Zcup", num=3)


def test_images_are_generated_and_saved(folder: Path, tmp_path: Path) -> None:
    generator = Generator.load(folder / "gan")
    generated = generator.predict(3, seed=5)
    assert [image.shape for image in generated.images] == [(28, 28, 3)] * 3
    np.testing.assert_array_equal(generator(3, seed=5).pixels, generated.pixels)
    assert not np.array_equal(generator(3, seed=6).pixels, generated.pixels)
    out = generated.save(tmp_path / "new")
    for number, image in enumerate(generated.images):
        np.testing.assert_array_equal(read_image(out / "images" / f"000{number}.png"), image)
    assert (out / "sheet.png").is_file()
