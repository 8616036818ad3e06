"""Charts as SVG that parses, with every number in it."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from boxcrew.report.doctor.charts import (
    HEIGHT,
    LOST,
    WIDTH,
    Bins,
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
    """The left, top, right and bottom of everything that has a tooltip."""
    groups = [group for group in ET.fromstring(chart).iter("g") if group.find("title") is not None]
    paths = [path.attrib["d"] for group in groups for path in group.iter("path")]
    points = [np.array(re.findall(r"[\d.]+", path), dtype=np.float64).reshape(-1, 2) for path in paths]
    return [(*corners.min(axis=0), *corners.max(axis=0)) for corners in points]


def ticks(chart: Html) -> list[float]:
    """The numbers on both axes."""
    texts = (text.text or "" for text in ET.fromstring(chart).iter("text"))
    return [float(text.replace(",", "")) for text in texts if re.fullmatch(r"[\d.,]+", text)]


@settings(max_examples=20)  # each draws a chart
@given(values=SIDES)
def test_no_value_is_lost_and_none_leaves_the_chart(values: Numbers) -> None:
    bins = Bins.doubling(values, "pixels")
    chart = histogram(values, bins, noun="things")
    assert sum(counts(chart)) == len(values)
    for left, top, right, bottom in rects(chart):
        assert 0 <= left < right <= WIDTH
        assert 0 <= top < bottom <= HEIGHT


@settings(max_examples=20)  # each draws a chart
@given(values=SIDES)
def test_a_heat_map_counts_all_points(values: Numbers) -> None:
    axes = Bins.doubling(values, "width"), Bins.doubling(values[::-1], "height")
    chart = heat_map(np.stack((values, values[::-1]), axis=1), axes, noun="things", ratios=(1 / 3, 1, 3))
    assert sum(counts(chart)) == len(values)


@settings(max_examples=20)  # each draws a chart
@given(most=st.integers(0, 3000))
def test_whole_numbers_have_whole_bins(most: int) -> None:
    bins = Bins.counting(most, "objects")
    assert len(bins.edges) <= 42
    values = np.arange(most + 1, dtype=np.float64)
    chart = histogram(values, bins, noun="things")
    assert sum(counts(chart)) == most + 1
    assert all(tick % 1 == 0 for tick in ticks(chart))
    assert bins.name(0).startswith("0")


def test_places_run_downwards_and_sizes_upwards() -> None:
    places = Bins.shares("x", num=4), Bins.shares("y", num=4)
    ((_, high, _, _),) = rects(heat_map(np.array([[0.1, 0.1]]), places, noun="things"))
    ((_, low, _, _),) = rects(heat_map(np.array([[0.1, 0.9]]), places, noun="things"))
    assert high < low
    sizes = np.array([10.0, 1000.0])
    axes = Bins.doubling(sizes, "w"), Bins.doubling(sizes, "h")
    small, large = rects(heat_map(np.stack((sizes, sizes), axis=1), axes, noun="things"))
    assert small[0] < large[0]
    assert small[1] > large[1]


def test_what_is_marked_is_said_and_seen() -> None:
    values = np.full(1000, 20.0)
    marked = np.arange(1000) < 3
    chart = histogram(values, Bins.doubling(values, "pixels"), noun="things", marked=marked)
    assert "1,000 things, 3 of them lost" in chart
    assert LOST in chart
    assert LOST not in histogram(
        values, Bins.doubling(values, "pixels"), noun="things", marked=~values.astype(bool)
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
    bins = Bins(edges=(1.0, 7.0, 900.0), title="x", log=log)
    chart = heat_map(np.array([[3.0, 3.0]]), (bins, bins), noun="things")
    assert 4 <= len(ticks(chart)) <= 20
    assert all(1 <= tick <= 900 for tick in ticks(chart))


def test_charts_are_the_same_every_time_and_have_no_ids() -> None:
    values = np.array([1.0, 2.0, 30.0])
    first, second = (histogram(values, Bins.doubling(values, "x"), noun="things") for _ in range(2))
    assert first == second
    assert not re.search(r' id="|url\(|<style|<metadata', first)
    assert 'role="img" aria-label="Histogram of things by x"' in first
