"""The headline: what is fine, and what comes first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from boxcrew.data.checks.problem import Problem, ProblemKind
from boxcrew.report.doctor.problems import problems_section
from boxcrew.report.doctor.report import Diagnosis
from boxcrew.report.doctor.summary import summarize
from boxcrew.testing.sources import DrawnSource


def test_the_summary_of_a_sound_set(small: Diagnosis) -> None:
    assert small.anchor_coverage is not None
    sound = replace(small, advice=(), anchor_coverage=replace(small.anchor_coverage, matched_fraction=0.999))
    summary = summarize(sound)
    assert summary.tasks == ()
    assert not summary.serious
    assert summary.title == "Ready to train."
    assert "All 14 images can be read." in summary.fine
    assert any("99.9 % of the boxes" in text for text in summary.fine)


def problem(kind: ProblemKind) -> Problem:
    return Problem(kind=kind, file="a.jpg", message="so", action="left out")


def test_a_cause_is_the_first_thing_to_do(small: Diagnosis) -> None:
    cause = Problem("cause", "x", "boxes are pixels: data.coordinates=pixels", "noted")
    source = replace(small.source, problems=(cause, problem("truncated-image")))
    summary = summarize(replace(small, source=source))
    assert summary.serious
    assert summary.tasks[0].text == "Boxes are pixels: data.coordinates=pixels."
    assert problems_section(source, workers=1).index("Cause of") < problems_section(source, workers=1).index(
        "Image cut short"
    )


def test_the_summary_puts_first_what_matters_most(small: Diagnosis) -> None:
    source = DrawnSource(
        root=Path("x"),
        classes=small.source.classes,
        splits=small.source.splits,
        problems=(problem("box-empty"), problem("leak"), problem("truncated-image")),
    )
    assert small.anchor_coverage is not None
    summary = summarize(
        replace(
            small,
            source=source,
            anchor_coverage=replace(small.anchor_coverage, matched_fraction=0.9),
            suspects=(),
        )
    )
    assert summary.serious  # one image of 15 is lost
    sections = [task.section for task in summary.tasks[:3]]
    assert sections == ["problems", "problems", "coverage"]
    assert "cannot be read" in summary.tasks[0].text
    assert "two splits" in summary.tasks[1].text
    assert not any("can be read" in text or "have an area" in text for text in summary.fine)
    assert "The trained detector contradicts no label of a class that it knows well." in summary.fine
