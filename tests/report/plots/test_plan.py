"""The plot of a plan's prediction."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, Protocol

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from boxcrew.plan.prediction import Interval, Memory, Prediction, Span
from boxcrew.report.plots import plan as plan_picture
from boxcrew.report.plots.plan import _headroom, _lanes, _number, plot_plan
from boxcrew.report.plots.style import DPI, SERIES, save

MIB = 2**20
GIB = 2**30
NONE = dict.fromkeys((*Memory.kinds, "margin"), 0)


@dataclass(frozen=True)
class Drawn:
    figure: Figure
    texts: tuple[Text, ...]  # that can be read

    @property
    def words(self) -> set[str]:
        return {text.get_text() for text in self.texts}


class Draw(Protocol):
    def __call__(self, prediction: Prediction, title: str = "A plan") -> Drawn: ...


def memory_of(device: str = "cuda:0", capacity: int = 24 * GIB, **kinds: int) -> Memory:
    return Memory(device=device, capacity=capacity, **(NONE | kinds))


def usual(device: str, capacity: int, activations: int) -> Memory:
    return memory_of(
        device,
        capacity,
        libraries=420 * MIB,
        parameters=140 * MIB,
        gradients=140 * MIB,
        optimizer=280 * MIB,
        activations=activations,
        inputs=60 * MIB,
        overhead=200 * MIB,
        margin=300 * MIB,
    )


def span(lane: str, name: str, begin: float, end: float) -> Span:
    return Span(lane=lane, name=name, begin=begin, end=end)


def a_step(devices: Sequence[str]) -> list[Span]:
    spans = [span("loader workers", "read and transform", 0, 0.17)]
    for device in devices:
        spans += [span(device, "copy", 0, 0.0004), span(device, "forward", 0.0004, 0.06)]
        spans += [span(device, "backward", 0.06, 0.168), span(device, "update", 0.196, 0.2)]
    return [*spans, *(span("network", "add up gradients", 0.1 + i / 50, 0.114 + i / 50) for i in range(5))]


def prediction_of(memory: Sequence[Memory], timeline: Sequence[Span] = ()) -> Prediction:
    return Prediction(
        memory=tuple(memory),
        step=Interval.around(0.2, 0.2),
        epoch=Interval.around(40, 0.2),
        run=Interval.around(4000, 0.3),
        images_per_second=80,
        bound="communication",
        timeline=tuple(timeline),
        basis="two steps in a child process",
    )


GPUS = tuple(f"cuda:{i}" for i in range(8))
CPU = usual("cpu", 64 * GIB, 40 * GIB)
ALL_KINDS = usual("cpu", 16 * GIB, 2 * GIB).model_copy(update={"evaluation": 250 * MIB, "workers": 140 * MIB})
PLANS = {
    "one device": prediction_of([usual("cpu", 16 * GIB, 2 * GIB)], a_step(["cpu"])),
    "nine devices": prediction_of([CPU, *(usual(name, 24 * GIB, 6 * GIB) for name in GPUS)], a_step(GPUS)),
    "all kinds": prediction_of([ALL_KINDS], a_step(["cpu"])),
    "no timeline": prediction_of([usual("cpu", 16 * GIB, 2 * GIB)]),
    "does not fit": prediction_of([CPU, usual("cuda:0", 8 * GIB, 9 * GIB)], a_step(["cuda:0"])),
    "is far too much": prediction_of([usual("cuda:0", 2 * GIB, 90 * GIB)], a_step(["cuda:0"])),
    "nothing": prediction_of([memory_of()], [span("cuda:0", "update", 0, 0)]),
}


@contextmanager
def drawing(file: Path) -> Iterator[Draw]:
    """Give a function that plots to a file and returns what was drawn when it was saved."""
    drawn: dict[Text, None] = {}
    figures: list[Figure] = []
    draw_text = Text.draw

    @wraps(draw_text)
    def note(text: Text, *args: Any, **kwargs: Any) -> None:
        drawn[text] = None
        draw_text(text, *args, **kwargs)

    def keep(figure: Figure, path: Path) -> None:
        drawn.clear()  # before, room was measured
        figures.append(figure)
        save(figure, path)

    def plot(prediction: Prediction, title: str = "A plan") -> Drawn:
        plot_plan(prediction, file, title=title)
        return Drawn(figures[-1], tuple(text for text in drawn if text.get_visible() and text.get_text()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "draw", note)
        patch.setattr(plan_picture, "save", keep)
        yield plot


@pytest.fixture
def draw(tmp_path: Path) -> Iterator[Draw]:
    """A function that plots to `plan.png`."""
    with drawing(tmp_path / "plan.png") as plot:
        yield plot


def count_of(pixels: Any, color: str) -> int:
    blue, green, red = (int(color[i : i + 2], 16) for i in (5, 3, 1))
    return int((abs(pixels.astype(int) - (blue, green, red)).max(axis=2) <= 2).sum())


@pytest.mark.parametrize("name", PLANS)
def test_a_picture_of_any_plan(name: str, read_png: Any, tmp_path: Path) -> None:
    with drawing(tmp_path / "new" / "plan.png") as plot, warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns where texts find no room
        drawn = plot(PLANS[name])
    pixels = read_png(tmp_path / "new" / "plan.png")
    height, width = pixels.shape[:2]
    assert width == round(12.5 * DPI)
    assert 400 <= height <= 1500
    assert 0.5 < (pixels > 250).all(axis=2).mean() < 0.97  # neither a blot nor blank
    require_readable(drawn)


def require_readable(drawn: Drawn) -> None:
    """Require that no text is cut off or covers another."""
    figure = drawn.figure
    extents = {text: text.get_window_extent() for text in drawn.texts}
    assert len(extents) > 10
    for text, box in extents.items():
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1, text
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1, text
    for (text, box), (other, other_box) in combinations(extents.items(), 2):
        shrunk = other_box.padded(-1)  # boxes of letters may touch
        assert not box.overlaps(shrunk), (text, other)


def test_a_device_that_is_hardly_used_can_be_read(draw: Draw) -> None:
    shown = draw(prediction_of([CPU, usual("cuda:0", 24 * GIB, 500 * MIB)])).words
    assert {"cpu · 64.0 GiB", "cuda:0 · 24.0 GiB"} <= shown
    assert {"libraries 420.0 MiB", "activations 500.0 MiB", "280.0 MiB"} <= shown
    assert {"22.0 GiB to spare", "needs 1.7 GiB, at most 2.0 GiB"} <= shown


def test_only_labels_with_room_are_written(draw: Draw) -> None:
    shown = draw(PLANS["nine devices"]).words
    assert {"forward 59.6 ms", "backward 108 ms", "read and transform 170 ms"} <= shown
    assert not any(text.startswith(("copy ", "update ")) for text in shown)
    assert {"copy", "update", "end of the step", "capacity", "margin"} <= shown  # in legends


def test_kinds_that_no_device_holds_are_not_in_the_legend(draw: Draw) -> None:
    shown = draw(prediction_of([memory_of(inputs=1), memory_of("cuda:1", overhead=1)])).words
    assert shown & set(NONE) == {"inputs", "overhead"}


def test_all_kinds_are_drawn() -> None:
    assert sum(getattr(ALL_KINDS, kind) for kind in Memory.kinds) == ALL_KINDS.peak


def test_bars_are_as_long_as_the_share(draw: Draw, read_png: Any, tmp_path: Path) -> None:
    counts = []
    for activations in (11, 15, 19, 23):  # as many digits, so that the words leave as much room
        draw(prediction_of([memory_of(activations=activations * GIB)]))  # its color: SERIES[4]
        counts.append(count_of(read_png(tmp_path / "plan.png"), SERIES[4]))
    more = [after - before for before, after in pairwise(counts)]
    assert more[0] > 2000
    assert more == pytest.approx([more[0]] * 3, rel=0.05)


def test_what_does_not_fit_stands_out(draw: Draw, read_png: Any, tmp_path: Path) -> None:
    counts = []
    for activations in (20 * GIB, 25 * GIB):
        drawn = draw(prediction_of([memory_of(activations=activations)]))
        counts.append(count_of(read_png(tmp_path / "plan.png"), SERIES[1]))
    assert counts[0] == 0
    assert counts[1] > 50
    assert "lacks up to 1.0 GiB" in drawn.words
    full, parts = drawn.figure.axes[:2]
    assert full.get_xlim()[1] > 25 / 24  # the bar goes on behind the mark
    assert [line.get_xdata()[0] for line in parts.lines] == pytest.approx([24 / 25])  # type: ignore[index]


@pytest.mark.parametrize(
    ("activations", "margin", "expected"),
    [
        (20, 1, "3.0 GiB to spare"),
        (20, 4, "0 B to spare"),
        (22, 5, "may lack 3.0 GiB"),
        (25, 1, "lacks up to 2.0 GiB"),
    ],
)
def test_headroom_in_words(activations: int, margin: int, expected: str) -> None:
    assert _headroom(memory_of(activations=activations * GIB, margin=margin * GIB)) == expected


def test_things_done_at_once_have_rows_of_their_own() -> None:
    first, second, third = (span("workers", "read", i, i + 2) for i in range(3))
    other = span("cpu", "forward", 0, 1)
    assert _lanes([third, other, second, first]) == {"workers": [[first, third], [second]], "cpu": [[other]]}
    assert _lanes([]) == {}


def test_rounding_does_not_make_a_row() -> None:
    spans = [span("cpu", "forward", 0, 0.1 + 0.2), span("cpu", "backward", 0.3, 0.5)]
    assert _lanes(spans) == {"cpu": [spans]}


def test_slow_steps_are_told_in_seconds(draw: Draw) -> None:
    shown = draw(prediction_of([memory_of()], [span("cpu", "forward", 0, 3)])).words
    assert "forward 3 s" in shown
    assert [_number(value) for value in (1234.5, 99.96, 2.534, 0)] == ["1234", "100", "2.53", "0"]


def test_a_long_title_is_broken(draw: Draw) -> None:
    short, long = (draw(PLANS["one device"], text) for text in ("A plan", "a detector and its backbone " * 8))
    assert long.figure.get_figheight() > short.figure.get_figheight()
    title = next(text for text in long.texts if text.get_text() == long.figure.get_suptitle())
    assert title.get_text().count("\n") == 2
    assert title.get_window_extent().width < long.figure.bbox.width


def test_pyplot_is_not_touched(tmp_path: Path) -> None:
    before = "matplotlib.pyplot" in sys.modules
    plot_plan(PLANS["one device"], tmp_path / "plan.png", title="A plan")
    assert ("matplotlib.pyplot" in sys.modules) == before
