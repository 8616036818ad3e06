"""The page of a study, put together."""

from __future__ import annotations

from datetime import datetime

from boxcrew.core.version import VERSION
from boxcrew.report.doctor.markup import Html, document, element, join
from boxcrew.report.doctor.style import STYLE
from boxcrew.report.study import plots
from boxcrew.report.study.details import space_section, time_section, trials_section
from boxcrew.report.study.overview import best_section, header, summary_section
from boxcrew.report.study.types import StudyReport

_STYLE = """
.study text { fill: #52606d; }
.study .tick { font-size: 11px; }
.study .title { fill: var(--ink); font-size: 12px; }
.study .halo { paint-order: stroke; stroke: #fff; stroke-width: 3px; }
.study path:hover { stroke-width: 4px; }
.study circle:hover, .study polygon:hover { stroke: #1f2933; }
.slices { grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)); }
.results { width: auto; margin-bottom: 12px; } .results td, .results th { padding-right: 32px; }
.results td { font-variant-numeric: tabular-nums; }
.changes, .space { width: auto; }
.changes td, .changes th + th, .space td { padding-left: 20px; overflow-wrap: anywhere; }
.changes del { color: var(--muted); text-decoration: none; }
.changes ins { text-decoration: none; font-weight: 600; }
.changes { margin-bottom: 16px; }
.space th, .changes th { font-weight: 400; }
pre { background: #f4f6f8; border-radius: 6px; padding: 10px 12px; overflow-x: auto; margin: 6px 0 14px;
  font: 0.85rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.copy { user-select: all; -webkit-user-select: all; }
details > summary { cursor: pointer; color: var(--accent); margin: 8px 0; }
.strip { margin-bottom: 8px; }
.wide { overflow-x: auto; }
.trials td { white-space: nowrap; }
.trials td:last-child { white-space: normal; min-width: 260px; }
.trials th.number { text-align: right; }
.trials code { display: inline-block; margin-right: 10px; color: var(--muted); }
.trials .best td { background: #fff4ec; }
.trials .reason { white-space: normal; min-width: 200px; max-width: 36ch; margin: 0; color: var(--warn);
  font-size: 0.88rem; }
@media (max-width: 700px) { .wide .chart { min-width: 640px; } }
"""


def study_page(report: StudyReport, *, yaml: str, when: datetime | None = None) -> str:
    """Return the page; `yaml` has the best settings, `when` is now by default."""
    sections = {
        "best": ("The best settings", best_section(report, yaml)),
        **_results_sections(report),
        "time": ("Time", time_section(report)),
        "trials": ("All trials", trials_section(report)),
        "space": ("What was searched", space_section(report)),
    }
    links = element("nav", *(element("a", title, href=f"#{name}") for name, (title, _) in sections.items()))
    bodies = [
        element("section", element("h2", title), body, id=name) for name, (title, body) in sections.items()
    ]
    moment = when or datetime.now().astimezone()
    return document(
        f"{report.data}: boxcrew tune",
        header(report),
        element("main", summary_section(report), links, *bodies),
        element("footer", element("p", f"boxcrew {VERSION}, {moment:%Y-%m-%d %H:%M %Z}. {report.study}")),
        style=STYLE + _STYLE,
    )


def _results_sections(report: StudyReport) -> dict[str, tuple[str, Html]]:
    """Return the sections with plots; none if no trial has any result."""
    if not any(trial.rungs or trial.curve for trial in report.trials):
        return {}
    compared = any(trial.first is not None for trial in report.trials)
    failed = report.counts.failed > 0
    band = " The band is what the recipe reaches by chance: two standard deviations over its seeds."
    sections = {
        "history": (
            "History",
            _figure(
                "Each trial at the best value that it has reached; the line is the best complete one so far."
                + band * (report.recipe.noise is not None),
                plots.trials_legend(failed=failed),
                element("div", plots.history(report), class_="wide"),
            ),
        ),
        "curves": (
            "Learning curves",
            _figure(
                "Trials pause at the dashed lines, where the best are chosen to go on."
                if len(report.rungs) > 1
                else "All trials are trained to the end.",
                plots.trials_legend(),
                element("div", plots.curves(report), class_="wide"),
            ),
        ),
    }
    if not compared or not plots.dimensions(report):
        return sections
    first = " All results here are those at the first comparison, which nearly all trials have reached."
    first *= len(report.rungs) > 1
    fewer = f" The {plots.MOST} most important settings are drawn." * (len(report.space) > plots.MOST)
    return sections | {
        "importance": ("Importance", plots.importance_bars(report)),
        "slices": (
            "Each setting by itself",
            _figure(f"A point for each trial.{first}{fewer}", plots.trials_legend(), plots.slices(report)),
        ),
        "parallel": (
            "All settings together",
            _figure(
                "A line for each trial; it runs below the axes of settings that the trial does not have."
                f"{first}{fewer}",
                plots.trials_legend(),
                element("div", plots.parallel(report), class_="wide"),
            ),
        ),
    }


def _figure(note: str, *parts: Html) -> Html:
    return join(element("p", note, class_="note"), *parts)
