"""What a GAN makes by `boxcrew predict`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from boxcrew.data.images.reading import read_image
from tests.helpers.made_examples import write_classes
from tests.helpers.untrained import untrained_run

Call = Callable[..., Any]
Pictures = npt.NDArray[np.uint8]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Which has learned nothing, but makes no two pictures alike."""
    folder = tmp_path_factory.mktemp("pictures")
    write_classes(folder / "photos", {"a": 4, "b": 4})
    task = {"name": "gan", "size": 28, "width": 4, "latent": 6, "initializer": "he"}
    return untrained_run(folder / "run", {"task": task, "data": str(folder / "photos")})


def made(boxcrew: Call, run: Path, *words: str) -> Pictures:
    """In the order of their names."""
    result = boxcrew("predict", f"run={run}", *words, "--json")
    assert result.code == 0, result.err
    files = sorted((Path(json.loads(result.out)["out"]) / "images").iterdir())
    return np.stack([read_image(file) for file in files])


def test_as_many_pictures_are_made_as_are_wanted(boxcrew: Call, run: Path, tmp_path: Path) -> None:
    result = boxcrew("predict", f"run={run}", "num=5", "out=new", "--json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    assert (report["out"], report["num"], report["engine"]["name"]) == ("new", 5, "torch")
    files = sorted((tmp_path / "new" / "images").iterdir())
    assert [file.name for file in files] == [f"000{number}.png" for number in range(5)]
    pictures = np.stack([read_image(file) for file in files])
    assert pictures.shape == (5, 28, 28, 3)
    assert len(np.unique(pictures, axis=0)) == 5
    sheet = read_image(tmp_path / "new" / "sheet.png")
    assert sheet.shape[0] >= 28
    assert sheet.shape[1] >= 5 * 28


def test_the_seed_decides_which(boxcrew: Call, run: Path) -> None:
    first, again, other = (made(boxcrew, run, "num=3", f"seed={seed}") for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert len(np.unique(np.concatenate((first, other)), axis=0)) == 6


def test_each_time_they_have_a_folder_of_their_own(boxcrew: Call, run: Path, tmp_path: Path) -> None:
    assert len(made(boxcrew, run)) == 64
    assert len(made(boxcrew, run, "num=2")) == 2
    names = {folder.name for folder in (tmp_path / "runs" / "gan").iterdir()}
    assert names == {"predict", "predict-2"}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("source=photo.png", "source: no such setting; there are: device, num, out, run, seed, weights"),
        ("text=hello", "text: no such setting; there are: device, num, out, run, seed, weights"),
        ("num=0", "num: input should be greater than or equal to 1, got '0'"),
        ("seed=-1", "seed: input should be greater than or equal to 0, got '-1'"),
    ],
)
def test_what_cannot_be_set_is_told(
    boxcrew: Call, run: Path, tmp_path: Path, word: str, message: str
) -> None:
    result = boxcrew("predict", f"run={run}", word, "--json")
    assert (result.code, json.loads(result.out)["exit"]) == (2, 2)
    assert f"error: {message}" in result.err
    assert list(tmp_path.iterdir()) == [], "nothing is written"
