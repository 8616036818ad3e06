"""Doubtful labels in words."""

from __future__ import annotations

from boxcrew.evaluate.detection.suspects import Suspect
from boxcrew.report.doctor.doubts import sentence


def test_suspects_in_words() -> None:
    suspect = Suspect(
        kind="wrong-box",
        key="a",
        split="train",
        box=(0, 0, 1, 1),
        label="tea",
        detected="tea",
        score=0.999,
        loss=1.0,
    )
    assert sentence(suspect) == "labeled 'tea'; the detector is 99 % sure of it, but elsewhere"
