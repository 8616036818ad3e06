"""Scales of the plots: round values inside, and nothing drawn outside."""

from __future__ import annotations

import math

import pytest

from boxcrew.report.study.drawing import Scale, choices_scale, place_of, text, values_scale

RANGES = [(0.0, 1.0), (-3.0, 7.5), (0.0123, 0.0127), (1e-9, 5e6), (99.0, 101.0)]


@pytest.mark.parametrize(("low", "high"), RANGES)
@pytest.mark.parametrize("log", [False, True])
def test_ticks_are_few_and_inside(low: float, high: float, *, log: bool) -> None:
    if log and low <= 0:
        low = 1e-4
    scale = Scale(low=low, high=high, log=log)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 6
    assert len({label for _, label in ticks}) == len(ticks)
    room = 1e-3 * (high - low)
    assert all(low - room <= value <= high + room for value, _ in ticks)


def test_a_log_scale_has_equal_distances_for_equal_factors() -> None:
    scale = Scale(low=1e-4, high=1.0, log=True)
    assert [scale.share(value) for value in (1e-4, 1e-2, 1.0)] == pytest.approx([0.0, 0.5, 1.0])
    assert scale.share(50.0) == 1.0


def test_trials_are_counted_in_whole_numbers() -> None:
    assert [label for _, label in Scale(low=-0.02, high=1.02, whole=True).ticks()] == ["0", "1"]


def test_one_terrible_result_does_not_squeeze_all_others() -> None:
    losses = [1.0 + 0.01 * i for i in range(30)] + [1e6]
    scale = values_scale(losses, higher_is_better=False)
    assert scale.high < 3
    assert scale.share(1e6) == 1.0
    best = values_scale([0.1] * 30 + [0.9], higher_is_better=True)  # but the best is always inside
    assert best.high > 0.9
    for values in ([], [0.0], [0.5], [0.5, 0.5], [-2.0]):
        scale = values_scale(values, higher_is_better=True)
        assert scale.low < scale.high
        assert all(math.isfinite(value) for value, _ in scale.ticks())


def test_choices_have_places_of_their_own() -> None:
    choices = (True, 1, "1", None, "a")
    assert [place_of(choice, choices) for choice in choices] == [0, 1, 2, 3, 4]
    assert place_of("b", choices) is None
    assert [label for _, label in choices_scale(choices).ticks()] == ["true", "1", "1", "null", "a"]
    assert text(0.123456) == "0.1235"
