"""The page: whole, safe whatever the names are, and readable by everybody."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxcrew.data.checks.near_duplicates import NearDuplicate
from boxcrew.data.checks.problem import Problem
from boxcrew.data.detection.statistics import split_statistics
from boxcrew.evaluate.detection.suspects import KINDS, Suspect
from boxcrew.report.doctor.page import doctor_page
from boxcrew.report.doctor.problems import MEANINGS
from boxcrew.report.doctor.report import Diagnosis
from boxcrew.testing.sources import DrawnSource

HOSTILE = "</style><script>alert(1)</script>\"' onerror=x &lt;"
WHEN = datetime(2024, 5, 6, 7, 8, tzinfo=UTC)


@pytest.fixture(scope="module")
def hostile(small: Diagnosis) -> Diagnosis:
    """With everything that can be in it, and names that would break a page."""
    source = DrawnSource.open(Path("nowhere"))
    source.classes = (HOSTILE, "b", "茶")
    source.splits = {
        name: tuple(replace(r, key=f"{name}/{HOSTILE}{i}.jpg") for i, r in enumerate(records))
        for name, records in source.splits.items()
    }
    source.problems = tuple(
        Problem(kind=kind, file=f"{HOSTILE}.xml", message=HOSTILE, at=HOSTILE, action="left out")
        for kind in MEANINGS
    )
    (record, *_), (other, *_) = source.split("train"), source.split("val")
    pair = NearDuplicate(
        first=record.key, first_split="train", second=other.key, second_split="val", distance=0.01
    )
    suspects = tuple(
        Suspect(
            kind=kind,
            key=record.key,
            split="train",
            box=(1, 2, 9, 8),
            label=None if kind == "missing-label" else HOSTILE,
            detected=None if kind == "unfindable" else HOSTILE,
            score=0.97,
            loss=3.0,
            detected_box=None if kind == "unfindable" else (2, 2, 9, 9),
        )
        for kind in KINDS
    )
    return replace(
        small,
        path=HOSTILE,
        source=source,
        statistics={name: split_statistics(part, source.classes) for name, part in source.splits.items()},
        near_duplicates=(pair,),
        anchor_coverage=replace(small.anchor_coverage, lost=np.arange(3), matched_fraction=0.5)
        if small.anchor_coverage
        else None,
        run=Path(HOSTILE),
        suspects=suspects,
    )


@pytest.fixture(params=["small", "hostile"])
def page(request: pytest.FixtureRequest, small: Diagnosis, hostile: Diagnosis, read_page: Any) -> Any:
    diagnosis = {"small": small, "hostile": hostile}[request.param]
    return read_page(doctor_page(diagnosis, command=f"boxcrew doctor data={HOSTILE}", when=WHEN))


def test_a_page_needs_nothing_from_elsewhere(page: Any) -> None:
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "iframe", "object", "embed", "base", "form"}
    assert all((source or "").startswith("data:image/jpeg;base64,") for source in page.values("img", "src"))
    assert all((link or "").startswith("#") for link in page.values("a", "href"))
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert "url(" not in page.text
    assert "@import" not in page.text


def test_a_page_says_what_its_pictures_show_and_its_links_lead_somewhere(page: Any) -> None:
    assert page.values("img", "alt")
    assert all(page.values("img", "alt"))
    identities = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identities) == len(set(identities))
    assert {link for link in page.values("a", "href") if link} <= {f"#{identity}" for identity in identities}
    assert ("html", {"lang": "en"}) in page.tags
    assert page.values("meta", "name").count("viewport") == 1
    assert all(
        attributes.get("aria-label") for tag, attributes in page.tags if attributes.get("role") == "img"
    )


def test_a_page_says_how_it_was_made(page: Any) -> None:
    assert f"boxcrew doctor data={HOSTILE}" in page.text
    assert "2024-05-06 07:08" in page.text


def test_names_stand_on_the_page_as_they_are(hostile: Diagnosis, read_page: Any) -> None:
    page = read_page(doctor_page(hostile, command=""))
    assert f"labeled '{HOSTILE}'; the detector is 97 % sure of '{HOSTILE}'" in page.text
    assert page.text.count(HOSTILE) > 2 * len(MEANINGS)
    assert all(meaning in page.text for meaning in MEANINGS.values())


def test_the_same_for_programs(hostile: Diagnosis) -> None:
    report = json.loads(json.dumps(hostile.to_json(), allow_nan=False))
    assert [suspect["kind"] for suspect in report["suspects"]] == list(KINDS)
    assert [problem["kind"] for problem in report["problems"]] == list(MEANINGS)
    assert len(report["near_duplicates"]) == 1


@pytest.mark.parametrize("name", ["bccd_voc", "coco128_yolo"])
def test_pages_of_real_sets_are_small(
    name: str, shared_data: Path, examined: Callable[[Path], Diagnosis], read_page: Any
) -> None:
    result = examined(shared_data / name)
    page = doctor_page(result, command="")
    assert len(page) < 3_000_000
    read = read_page(page)
    assert all(class_name in read.text for class_name in result.source.classes)
    assert len(read.values("img", "src")) >= 20
