"""Charts as SVG that parses, with every number in it."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from boxcrew.report.doctor.charts import (
    HEIGHT,
    LOST,
    WIDTH,
    Axis,
    Numbers,
    bar,
    heat_map,
    histogram,
    share_bars,
)
from boxcrew.report.doctor.markup import Html

SIDES = arrays.arrays(np.float64, st.integers(1, 50), elements=st.floats(0.25, 10_000))


def counts(chart: Html) -> list[int]:
    """What the tooltips tell."""
    ET.fromstring(chart)
    return [int(n.replace(",", "")) for n in re.findall(r": ([\d,]+) things", chart)]


def rects(chart: Html) -> list[tuple[float, float, float, float]]:
    tree = ET.fromstring(chart)
    sides = ("x", "y", "width", "height")
    return [tuple(float(r.attrib[s]) for s in sides) for r in tree.iter("rect")]  # type: ignore[misc]


@given(values=SIDES)
def test_no_value_is_lost_and_none_leaves_the_chart(values: Numbers) -> None:
    axis = Axis.doubling(values, "pixels")
    chart = histogram(values, axis, what="things")
    assert sum(counts(chart)) == len(values)
    for x, y, width, height in rects(chart):
        assert -0.1 <= x <= x + width <= WIDTH + 0.1
        assert -0.1 <= y <= y + height <= HEIGHT + 0.1


@given(values=SIDES)
def test_a_heat_map_counts_all_points(values: Numbers) -> None:
    axes = Axis.doubling(values, "width"), Axis.doubling(values[::-1], "height")
    chart = heat_map(values, values[::-1], axes, what="things", lines=(1 / 3, 1, 3))
    assert sum(counts(chart)) == len(values)


@given(most=st.integers(0, 3000))
def test_whole_numbers_have_whole_bins(most: int) -> None:
    axis = Axis.counting(most, "objects")
    assert len(axis.edges) <= 42
    values = np.arange(most + 1, dtype=np.float64)
    assert sum(counts(histogram(values, axis, what="things"))) == most + 1
    assert axis.bin_name(0).startswith("0")
    assert all(tick % 1 == 0 for tick in axis.ticks())


def test_places_run_downwards_and_sizes_upwards() -> None:
    places = Axis.shares("x", bins=4), Axis.shares("y", bins=4)
    (_, *_), (_, high, _, _) = rects(heat_map(np.array([0.1]), np.array([0.1]), places, what="things"))
    (_, *_), (_, low, _, _) = rects(heat_map(np.array([0.1]), np.array([0.9]), places, what="things"))
    assert high < low
    sizes = np.array([10.0, 1000.0])
    axes = Axis.doubling(sizes, "w"), Axis.doubling(sizes, "h")
    _, small, large = rects(heat_map(sizes, sizes, axes, what="things"))
    assert small[0] < large[0]
    assert small[1] > large[1]


def test_what_is_marked_is_said_and_seen() -> None:
    values = np.full(1000, 20.0)
    marked = np.arange(1000) < 3
    chart = histogram(values, Axis.doubling(values, "pixels"), what="things", marked=marked)
    assert "1,000 things, 3 of them lost" in chart
    assert LOST in chart
    assert LOST not in histogram(
        values, Axis.doubling(values, "pixels"), what="things", marked=~values.astype(bool)
    )


def test_bars() -> None:
    assert bar((0.25, "red"), (0.0, "green")).count("<i ") == 1
    table = share_bars([("size=256", 0.91234), ("size=384", 0.9999), ("size=512", 1.0)], chosen="size=256")
    assert "91.2 %" in table
    assert "99.9 %" in table
    assert "100.0 %" in table
    assert table.count('class="chosen"') == 1


@pytest.mark.parametrize("log", [False, True])
def test_an_axis_has_a_few_ticks_inside(log: bool) -> None:
    axis = Axis(edges=(1.0, 7.0, 900.0), title="x", log=log)
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 10
    assert all(0 <= axis.place(tick) <= 1 for tick in ticks)
