"""`boxcrew doctor` as a user calls it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.tiny import TINY

Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def photos(tiny_set: Path, tmp_path: Path) -> Path:
    """A set with one image that is cut short."""
    shutil.copytree(tiny_set, tmp_path / "photos")
    victim = sorted((tmp_path / "photos" / "JPEGImages").iterdir())[0]
    victim.write_bytes(victim.read_bytes()[:1000])
    return victim


def test_a_page_and_a_document(boxcrew: Call, photos: Path, tmp_path: Path) -> None:
    result = boxcrew("doctor", "data=photos", *TINY, "--json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    out = tmp_path / "runs" / "doctor" / "photos"
    assert tmp_path / report.pop("out") == out
    assert sorted(file.name for file in out.iterdir()) == ["doctor.html", "doctor.json"]
    assert json.loads((out / "doctor.json").read_text()) == report
    assert [problem["kind"] for problem in report["problems"]] == ["truncated-image"]
    assert report["detector"]["size"] == 96
    page = (out / "doctor.html").read_text()
    assert photos.name in page
    assert "boxcrew doctor data=photos" in page
    for message in ("13 images can be read", "1 image cannot be read"):
        assert (message in page) == (message[0] == "1" and "cannot" in message)


def test_the_screen_says_it_in_short_and_nothing_is_overwritten(
    boxcrew: Call, photos: Path, tmp_path: Path
) -> None:
    for place in ("photos", "photos-2"):
        result = boxcrew("doctor", "data=photos", *TINY)
        assert result.code == 0, result.err
        for message in (
            "13 images",
            photos.name,
            "advice: ",
            "coverage: ",
            "near-duplicates: none",
            f"doctor/{place}/",
        ):
            assert message in " ".join(result.out.split()).replace("train 7, val 4, test 2", "13"), message
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    for out in (mine, mine / "thesis.txt"):
        result = boxcrew("doctor", "data=photos", f"out={out}")
        assert result.code == 2
        assert "give a directory that does not exist yet" in result.err
    assert (mine / "thesis.txt").read_text() == "years of work"


def test_strict_still_writes_the_page(boxcrew: Call, photos: Path, tmp_path: Path) -> None:
    result = boxcrew("doctor", "data=photos", "data.strict=true", "out=here", *TINY)
    assert result.code == 3
    assert "1 problems, and data.strict=true" in result.err
    assert (tmp_path / "here" / "doctor.html").is_file()


def test_a_run_brings_its_detector_its_data_and_its_doubts(
    boxcrew: Call, tiny_run: Path, tiny_set: Path, tmp_path: Path
) -> None:
    result = boxcrew("doctor", f"run={tiny_run}", "out=own", "--json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    assert Path(report["data"]) == tiny_set
    assert report["detector"]["size"] == 96
    assert isinstance(report["suspects"], list)
    assert report["run"] == str(tiny_run)
    assert sorted(file.name for file in (tmp_path / "own").iterdir()) == ["doctor.html", "doctor.json"]


def test_nothing_useful_left_is_a_data_error(boxcrew: Call, photos: Path, tmp_path: Path) -> None:
    for image in photos.parent.iterdir():
        image.write_bytes(b"not a photo")
    result = boxcrew("doctor", "data=photos")
    assert result.code == 3
    assert "no usable training image" in result.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "doctor: which data set?"),
        (("photos",), 2, "doctor: which data set?"),
        (("photos", "data=shelf"), 2, "a data set is given as data=photos"),
        (("data=products",), 2, "only images with boxes can be examined"),
        (("fc", "data=shelf"), 2, "boxcrew data shelf shows what is in it"),
        (("data=nowhere",), 3, "nowhere: no such file or directory"),
        (("data=shelf", "startr"), 2, "did you mean 'starter'?"),
        (("data=shelf", "detector.sise=3"), 2, "did you mean 'size'?"),
        (("data=shelf", "run=nowhere"), 2, "not a run directory"),
        (("data=shelf", "out=photos/file/page"), 2, "photos/file/page: cannot be written to"),
        (("run=nowhere", "size=512"), 2, "size: cannot be combined with run="),
        (("run=nowhere", "starter"), 2, "starter: cannot be combined with run="),
    ],
)
def test_bad_input_is_one_clear_error_and_writes_nothing(
    boxcrew: Call, tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "file").write_text("")
    result = boxcrew("doctor", *words)
    assert result.code == code
    assert message in result.err
    assert "Traceback" not in result.err
    assert [file.name for file in tmp_path.iterdir()] == ["photos"]


def test_proposals_are_measured_for_detectors_that_start_from_them(boxcrew: Call, photos: Path) -> None:
    quick = ("fast_rcnn", "data=photos", "detector.backbone=lcnet_035", "size=96", "detector.proposals=20")
    result = boxcrew("doctor", *quick, "init=scratch", "--json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    coverage = report["proposal_coverage"]
    assert report["anchor_coverage"] is None
    assert coverage["mean_proposals"] <= 20
    assert 0 < coverage["recall70"] <= coverage["recall50"] < 1
    page = (Path(report["out"]) / "doctor.html").read_text()
    assert "proposals an image cover" in page
    assert f"proposals: {coverage['mean_proposals']:.0f} an image cover" in result.err
    assert photos.is_file()
