"""Every format of the registry keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.examples.example_set import EXAMPLE_FORMATS, ExampleOptions, open_examples
from boxcrew.data.examples.formats.embedded import ProductScenes
from boxcrew.testing.examples import check_invariants, check_opens_the_same, check_refuses
from tests.helpers.made_examples import MAKERS

EMBEDDED = {"products", "shop_talk"}
ON_DISK = sorted(set(EXAMPLE_FORMATS.names()) - EMBEDDED)
WANTED = ExampleOptions(length=16, seed=3)


def test_the_formats_are_there() -> None:
    assert set(EXAMPLE_FORMATS.names()) >= {"idx", "csv", "folder", "crops", "text"} | EMBEDDED
    assert all(EXAMPLE_FORMATS.get(name).name == name for name in EXAMPLE_FORMATS.names())


@pytest.mark.parametrize("format", ON_DISK)
def test_sets_are_detected_and_opened(format: str, tmp_path: Path) -> None:
    path = MAKERS[format](tmp_path)
    assert [name for name in EXAMPLE_FORMATS.names() if EXAMPLE_FORMATS.get(name).detect(path)] == [format]
    opened = open_examples(path, WANTED)
    assert opened.format == format
    assert opened.root == path
    check_invariants(opened)


@pytest.mark.parametrize("format", ON_DISK)
def test_opening_twice_gives_the_same(format: str, tmp_path: Path) -> None:
    check_opens_the_same(MAKERS[format](tmp_path), WANTED)


@pytest.mark.parametrize("format", sorted(EMBEDDED))
def test_embedded_sets_are_opened_by_their_names(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProductScenes, "num_images", {"train": 12, "val": 4, "test": 4})  # drawing takes time
    opened = open_examples(format, WANTED)
    assert opened.format == format
    assert opened.problems == ()
    assert set(opened.splits) == {"train", "val", "test"}
    check_invariants(opened)


@pytest.mark.parametrize("format", ON_DISK)
def test_refuses_what_is_not_its_own(format: str, tmp_path: Path) -> None:
    check_refuses(format, tmp_path)


def test_what_was_looked_for_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError) as raised:
        open_examples(tmp_path, ExampleOptions())
    assert "idx: train-images-idx3-ubyte" in raised.value.advice
    assert "products: its name" in raised.value.advice
