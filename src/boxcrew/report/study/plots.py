"""The plots of a study. Trials that were stopped early are lighter; the best and the recipe stand out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from boxcrew.report.doctor.charts import legend, share_bars
from boxcrew.report.doctor.markup import Html, element, join
from boxcrew.report.plots.style import shorten
from boxcrew.report.study import drawing
from boxcrew.report.study.drawing import BEST, COMPLETE, EARLY, FAILED, RECIPE, PlotFrame, Scale
from boxcrew.report.study.types import DimensionReport, StudyReport, TrialReport

MOST = 12
"""Dimensions that are drawn: the most important."""
_WIDE, _HIGH = 900.0, 330.0
_UNUSED = 26.0  # between the lower end of an axis and the place of trials that do not have the setting


def trials_legend(*, failed: bool = False) -> Html:
    entries = [(BEST, "best"), (RECIPE, "recipe's own settings"), (COMPLETE, "complete")]
    more = [(EARLY, "stopped early or not finished")] + [(FAILED, "failed")] * failed
    return legend(*entries, *more)


def history(report: StudyReport) -> Html:
    """Return the results of all trials in their order, with the best so far."""
    values = [trial.value for trial in report.trials if trial.value is not None]
    noise = report.recipe.noise
    ends = [] if noise is None else [noise.mean + sign * 2 * noise.deviation for sign in (-1, 1)]
    y = drawing.values_scale([*values, *ends], higher_is_better=report.higher_is_better)
    last = max(1, len(report.trials) - 1)
    frame = PlotFrame(width=_WIDE, height=_HIGH, x=Scale(low=-0.02 * last, high=1.02 * last, whole=True), y=y)
    marks = frame.axes("trial", report.metric)
    if ends:
        marks.append(_band(frame, *ends))
    marks.append(_best_so_far(report, frame))
    for trial in _drawn_last(report):
        worst = y.low if report.higher_is_better else y.high
        value = worst if trial.value is None else trial.value
        if trial.value is not None or trial.failure is not None:
            marks.append(_mark(report, trial, frame.point(trial.trial, value)))
    return frame.svg(marks, f"{report.metric} of all trials in their order")


def _band(frame: PlotFrame, low: float, high: float) -> Html:
    """Return the range in which the recipe's results lie by chance."""
    x, top = frame.point(frame.x.low, high)
    right, bottom = frame.point(frame.x.high, low)
    title = element("title", f"the recipe with other seeds: {low:.4g} to {high:.4g}")
    size = {"width": right - x, "height": max(1.0, bottom - top)}
    return element("rect", title, x=x, y=top, **size, fill=RECIPE, fill_opacity=0.09)


def _best_so_far(report: StudyReport, frame: PlotFrame) -> Html:
    places, best = list[tuple[float, float]](), None
    for trial in report.trials:
        if trial.state != "complete" or trial.value is None:
            continue
        if best is not None and report.sign * trial.value <= report.sign * best:
            continue
        if best is not None:
            places.append(frame.point(trial.trial, best))
        best = trial.value
        places.append(frame.point(trial.trial, best))
    if best is None:
        return Html()
    places.append(frame.point(len(report.trials) - 1, best))
    return drawing.path(places, BEST, width=1.6, title="the best complete trial so far")


def importance_bars(report: StudyReport) -> Html:
    """Return the importance of each setting, or why there is none."""
    if report.importance is None:
        least = "there are too few trials that differ: ten that have been compared once are needed"
        return element("p", f"Not computed: {least}.", class_="note")
    found, targets = report.importance, {each.name: each.target for each in report.space}
    shares = [(targets.get(name, name), share) for name, share in found.shares.items()]
    note = (
        f"Share of the differences between {found.trials} trials at their first comparison that each setting "
        f"explains, by {found.method}. Settings that some trials do not have are left out."
    )
    chosen = shares[0][0] if shares else ""
    return join(element("p", note, class_="note"), share_bars(shares, chosen=chosen))


def dimensions(report: StudyReport) -> list[DimensionReport]:
    """Return the dimensions to draw, the most important first."""
    shares = {} if report.importance is None else report.importance.shares
    varied = [each for each in report.space if any(each.name in trial.params for trial in report.trials)]
    return sorted(varied, key=lambda each: -shares.get(each.name, 0.0))[:MOST]


def parallel(report: StudyReport) -> Html:
    """Return a line for each trial through its settings, to its result at the first comparison."""
    compared = [trial for trial in _drawn_last(report) if trial.first is not None]
    names = dimensions(report)
    scales = [dimension_scale(each) for each in names]
    scales.append(_first_scale(report))
    width, turned = max(_WIDE, 90.0 * len(scales)), len(scales) > 6
    frame = PlotFrame(
        width=width,
        height=_HIGH + 40,
        x=Scale(low=0, high=len(scales) - 1),
        y=Scale(low=0, high=1),
        left=60,
        right=90 if turned else 60,
        top=80 if turned else 40,
        bottom=20 + _UNUSED,
    )
    marks = [_trial_line(report, trial, names, scales, frame) for trial in compared]
    titles = [*(each.target for each in names), report.metric]
    for i, (title, scale) in enumerate(zip(titles, scales, strict=True)):
        marks += _axis(frame, i, title, scale, turned=turned)
    return frame.svg(marks, "Settings and results of all trials")


def _trial_line(
    report: StudyReport,
    trial: TrialReport,
    names: Sequence[DimensionReport],
    scales: Sequence[Scale],
    frame: PlotFrame,
) -> Html:
    values = [dimension_value(each, trial) for each in names]
    places = [
        frame.point(i, scale.share(value)) if value is not None else _unused(frame, i)
        for i, (value, scale) in enumerate(zip([*values, trial.first], scales, strict=True))
    ]
    color, standing = color_of(report, trial), trial.trial == 0 or _is_best(report, trial)
    return drawing.path(places, color, width=2.6 if standing else 1.2, title=_tooltip(report, trial))


def _unused(frame: PlotFrame, i: int) -> tuple[float, float]:
    x, y = frame.point(i, 0)
    return x, y + _UNUSED


def _axis(frame: PlotFrame, i: int, title: str, scale: Scale, *, turned: bool) -> list[Html]:
    (x, bottom), (_, top) = frame.point(i, 0), frame.point(i, 1)
    turn = f"rotate(-28 {x:.1f} {top - 12:.1f})" if turned else None
    anchor = "start" if turned else "middle"
    marks = [
        drawing.path([(x, bottom), (x, top)], FAILED, width=1),
        drawing.label_at(x, top - 12, shorten(title, 30), anchor=anchor, class_="title", transform=turn),
    ]
    for value, label in scale.ticks():
        _, y = frame.point(i, scale.share(value))
        marks.append(drawing.label_at(x + 5, y + 4, shorten(label, 12), class_="tick halo"))
    return marks


def slices(report: StudyReport) -> Html:
    """Return a plot for each setting: its values, and what trials with them reached."""
    y = _first_scale(report)
    figures = [_slice(report, each, y) for each in dimensions(report)]
    return element("div", *figures, class_="charts slices")


def _slice(report: StudyReport, dimension: DimensionReport, y: Scale) -> Html:
    frame = PlotFrame(width=340, height=230, x=dimension_scale(dimension), y=y)
    marks = frame.axes(dimension.target, report.metric)
    for trial in _drawn_last(report):
        value = dimension_value(dimension, trial)
        if value is not None and trial.first is not None:
            spread = ((trial.trial * 0.618) % 1 - 0.5) * 0.5 if dimension.choices else 0.0
            marks.append(_mark(report, trial, frame.point(value + spread, trial.first)))
    return element("figure", frame.svg(marks, f"{report.metric} by {dimension.target}"))


def curves(report: StudyReport) -> Html:
    """Return the results of all trials while they were trained, with a mark where each was stopped."""
    values = [point.value for trial in report.trials for point in trial.curve]
    y = drawing.values_scale(values, higher_is_better=report.higher_is_better)
    frame = PlotFrame(width=_WIDE, height=_HIGH, x=Scale(low=0, high=100), y=y)
    marks = frame.axes("percent of a full training", report.metric)
    for step in report.rungs[:-1]:
        share = 100 * step / report.rungs[-1]
        marks.append(_rung(frame, share))
    for trial in _drawn_last(report):
        if not trial.curve:
            continue
        places = [frame.point(100 * point.step / trial.length, point.value) for point in trial.curve]
        color, standing = color_of(report, trial), trial.trial == 0 or _is_best(report, trial)
        marks.append(
            drawing.path(places, color, width=2.4 if standing else 1.2, title=_tooltip(report, trial))
        )
        marks += [drawing.dot(place, color, _tooltip(report, trial), radius=2.6) for place in places[-1:]]
    return frame.svg(marks, f"{report.metric} during the training of all trials")


def _rung(frame: PlotFrame, x: float) -> Html:
    ends = [frame.point(x, frame.y.low), frame.point(x, frame.y.high)]
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in ends)
    title = element("title", "trials are compared here: the best go on")
    return element("path", title, d=f"M{steps}", stroke=FAILED, stroke_dasharray="4 4", fill="none")


def dimension_scale(dimension: DimensionReport) -> Scale:
    if dimension.choices:
        return drawing.choices_scale(dimension.choices)
    return Scale(low=dimension.low, high=dimension.high, log=dimension.log)


def dimension_value(dimension: DimensionReport, trial: TrialReport) -> float | None:
    """Return the place of a trial's value on the scale of a dimension; None if it has none."""
    value: Any = trial.params.get(dimension.name)
    if dimension.choices:
        return drawing.place_of(value, dimension.choices) if dimension.name in trial.params else None
    return None if value is None else float(value)


def color_of(report: StudyReport, trial: TrialReport) -> str:
    if _is_best(report, trial):
        return BEST
    if trial.failure is not None:
        return FAILED
    return RECIPE if trial.trial == 0 else COMPLETE if trial.state == "complete" else EARLY


def _mark(report: StudyReport, trial: TrialReport, place: tuple[float, float]) -> Html:
    color, title = color_of(report, trial), _tooltip(report, trial)
    if trial.failure is not None:
        return drawing.cross(place, color, title)
    if trial.trial == 0:
        return drawing.diamond(place, color, title)
    return drawing.dot(place, color, title, radius=6.0 if _is_best(report, trial) else 3.6)


def _is_best(report: StudyReport, trial: TrialReport) -> bool:
    return report.best is not None and report.best.trial == trial.trial


def _drawn_last(report: StudyReport) -> list[TrialReport]:
    """Return the trials with those that must not be covered at the end."""
    order = {"complete": 1, "failed": 2}
    return sorted(
        report.trials,
        key=lambda each: (_is_best(report, each), each.trial == 0, order.get(each.state, 0), each.trial),
    )


def _first_scale(report: StudyReport) -> Scale:
    values = [trial.first for trial in report.trials if trial.first is not None]
    return drawing.values_scale(values, higher_is_better=report.higher_is_better)


def _tooltip(report: StudyReport, trial: TrialReport) -> str:
    """Return what a mark stands for."""
    value = "" if trial.value is None else f", {report.metric} {trial.value:.4g} after {trial.steps} steps"
    settings = [f"\n{key} = {drawing.text(value)}" for key, value in trial.settings.items()]
    return f"trial {trial.trial}: {trial.state}{value}{''.join(settings) or chr(10) + 'the recipe'}"
