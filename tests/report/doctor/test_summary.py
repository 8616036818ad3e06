"""The headline: what is fine, and what comes first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from boxcrew.data.checks.problem import Kind, Problem
from boxcrew.report.doctor.report import Diagnosis
from boxcrew.report.doctor.summary import summarize
from boxcrew.testing.sources import DrawnSource


def test_the_verdict_of_a_sound_set(small: Diagnosis) -> None:
    assert small.anchor_coverage is not None
    sound = replace(small, advice=(), anchor_coverage=replace(small.anchor_coverage, share=0.999))
    found = summarize(sound)
    assert found.tasks == ()
    assert not found.serious
    assert found.title == "Ready to train."
    assert "All 14 images can be read." in found.fine
    assert any("99.9 % of the boxes" in text for text in found.fine)


def problem(kind: Kind) -> Problem:
    return Problem(kind=kind, file="a.jpg", what="so", action="left out")


def test_the_verdict_puts_first_what_matters_most(small: Diagnosis) -> None:
    source = DrawnSource(
        root=Path("x"),
        classes=small.source.classes,
        splits=small.source.splits,
        problems=(problem("box-empty"), problem("leak"), problem("truncated-image")),
    )
    assert small.anchor_coverage is not None
    found = summarize(
        replace(small, source=source, anchor_coverage=replace(small.anchor_coverage, share=0.9), suspects=())
    )
    assert found.serious  # one image of 15 is lost
    sections = [task.section for task in found.tasks[:3]]
    assert sections == ["problems", "problems", "coverage"]
    assert "cannot be read" in found.tasks[0].text
    assert "two splits" in found.tasks[1].text
    assert not any("can be read" in text or "have an area" in text for text in found.fine)
    assert "The trained detector contradicts no label of a class that it knows well." in found.fine
