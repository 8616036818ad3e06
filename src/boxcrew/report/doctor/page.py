"""The doctor's page: one HTML file that needs no other."""

from __future__ import annotations

from datetime import datetime

from boxcrew.core.version import VERSION
from boxcrew.hardware.probe import usable_cores
from boxcrew.report.doctor.boxes import boxes_section, coverage_section
from boxcrew.report.doctor.classes import classes_section, samples_section
from boxcrew.report.doctor.doubts import duplicates_section, suspects_section
from boxcrew.report.doctor.markup import Html, document, element, join
from boxcrew.report.doctor.problems import problems_section
from boxcrew.report.doctor.report import Diagnosis, set_name
from boxcrew.report.doctor.style import STYLE
from boxcrew.report.doctor.summary import MOST, DoctorSummary, Recommendation, summarize


def doctor_page(diagnosis: Diagnosis, *, command: str, when: datetime | None = None) -> str:
    """Return the page; `command` is what it was made with, `when` is now by default."""
    workers = max(1, int(usable_cores()))
    source = diagnosis.source
    sections = {
        "problems": ("What is wrong", problems_section(source, workers=workers)),
        "classes": ("Classes", classes_section(diagnosis.statistics, source.classes)),
        "samples": ("What they look like", samples_section(source, workers=workers)),
        "boxes": ("Boxes and images", boxes_section(diagnosis)),
        "coverage": ("What the detector can match", coverage_section(diagnosis, workers=workers)),
        "duplicates": ("Near-duplicates across splits", duplicates_section(diagnosis, workers=workers)),
        "suspects": ("Doubtful labels", suspects_section(diagnosis, workers=workers)),
    }
    links = element("nav", *(element("a", title, href=f"#{name}") for name, (title, _) in sections.items()))
    bodies = [
        element("section", element("h2", title), body, id=name) for name, (title, body) in sections.items()
    ]
    name = set_name(diagnosis.path)
    return document(
        f"{name}: boxcrew doctor",
        _header(diagnosis, name),
        element("main", _summary_section(summarize(diagnosis)), links, *bodies),
        _footer(command, when or datetime.now().astimezone()),
        style=STYLE,
    )


def _header(diagnosis: Diagnosis, name: str) -> Html:
    facts = [
        (f"{diagnosis.num_images:,}", "images"),
        (f"{diagnosis.num_boxes:,}", "boxes"),
        (f"{len(diagnosis.source.classes):,}", "classes"),
    ]
    counts = join(*(join(element("b", number), f" {noun} · ") for number, noun in facts))
    splits = ", ".join(f"{name} {split.num_images:,}" for name, split in diagnosis.statistics.items())
    detector = f"{diagnosis.detector.name} at {diagnosis.detector.size.describe()}"
    return element(
        "header",
        element("p", "boxcrew doctor", class_="brand"),
        element("h1", name),
        element(
            "p", counts, f"{splits} · {diagnosis.source.format} · compared with {detector}", class_="facts"
        ),
    )


def _summary_section(summary: DoctorSummary) -> Html:
    items = [_task(task) for task in summary.tasks]
    more = [element("h3", "And then"), element("ol", *items[MOST:], start=MOST + 1, class_="note")]
    columns = [
        element(
            "div", element("h3", "To do first"), element("ol", *items[:MOST]), *more * (len(items) > MOST)
        ),
        element("div", element("h3", "Fine"), element("ul", *(element("li", text) for text in summary.fine))),
    ]
    shown = [column for column, items in zip(columns, (summary.tasks, summary.fine), strict=True) if items]
    mood = "bad" if summary.serious else "todo" if summary.tasks else ""
    return element(
        "section",
        element("h2", summary.title),
        element("div", *shown, class_="columns"),
        class_=f"summary {mood}".strip(),
        id="summary",
    )


def _task(task: Recommendation) -> Html:
    text = f"{task.text[:1].upper()}{task.text[1:].removesuffix('.')}. "
    return element("li", text, element("a", "See", href=f"#{task.section}"))


def _footer(command: str, when: datetime) -> Html:
    return element(
        "footer",
        element("p", element("code", command)),
        element("p", f"boxcrew {VERSION}, {when:%Y-%m-%d %H:%M %Z}. Nothing in the data set was changed."),
    )
