"""A whole set held against what a run has learned."""

from __future__ import annotations

from pathlib import Path

from boxcrew.data.detection.source import open_source
from boxcrew.evaluate.detection.suspects import KINDS
from boxcrew.report.doctor.suspects import find_suspects
from boxcrew.train.output.screen import Screen


def test_a_run_of_a_few_steps_goes_through(tiny_run: Path, tiny_set: Path) -> None:
    """It has learned nothing, so it says nothing; classes that it does not know are no matter."""
    source = open_source(tiny_set)
    assert find_suspects(tiny_run, source, Screen(), device="cpu") == ()
    source.classes = (*source.classes, "unheard of")
    suspects = find_suspects(tiny_run, source, Screen(), limit=1, device="cpu")
    assert {suspect.kind for suspect in suspects} <= set(KINDS)
