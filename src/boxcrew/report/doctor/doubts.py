"""The sections of the doctor's page about doubts: near-duplicates across splits, and suspicious labels."""

from __future__ import annotations

from functools import partial

from boxcrew.data.detection.records import Record
from boxcrew.evaluate.detection.suspects import KINDS, Suspect, SuspectKind
from boxcrew.report.doctor.charts import legend
from boxcrew.report.doctor.markup import Html, element, join
from boxcrew.report.doctor.report import Diagnosis, with_plural
from boxcrew.report.doctor.thumbnails import Frame, Thumbnail, render_figures
from boxcrew.report.plots.style import SERIES

_MAX_PAIRS = 12
_MAX_SUSPECTS = 12  # of one kind
_LABEL, _DETECTED = SERIES[1], SERIES[0]  # colors of labels and of detections
_TITLES: dict[SuspectKind, str] = {
    "missing-label": "Perhaps a missing label",
    "wrong-class": "Perhaps the wrong class",
    "wrong-box": "Perhaps a wrong box",
    "unfindable": "Labeled, but not found",
}


def duplicates_section(diagnosis: Diagnosis, *, workers: int) -> Html:
    pairs = diagnosis.near_duplicates
    if len(diagnosis.statistics) < 2:
        return element("p", "The data set has one split, so nothing can be in two.")
    if not pairs:
        return element("p", "None: no image looks like one of another split.")
    records = {record.key: record for record in diagnosis.records}
    shown = pairs[:_MAX_PAIRS]
    thumbnails = [
        Thumbnail(
            read=partial(diagnosis.source.read, records[key]),
            alt=key,
            side=260,
            caption=element("figcaption", element("b", split), f" {key}"),
        )
        for pair in shown
        for key, split in ((pair.first, pair.first_split), (pair.second, pair.second_split))
    ]
    figures = render_figures(thumbnails, workers=workers)
    cards = [element("div", *both, class_="pair") for both in zip(figures[::2], figures[1::2], strict=True)]
    note = f" The {len(shown)} most alike are shown; doctor.json names all."
    more = note if len(pairs) > len(shown) else ""
    text = (
        f"{with_plural(len(pairs), 'image looks', 'images look')} like one of another split "
        "though the files differ: saved again, resized, cropped or mirrored. If one is used for training, "
        f"the other measures nothing.{more}"
    )
    return join(element("p", text), element("div", *cards, class_="pairs"))


def suspects_section(diagnosis: Diagnosis, *, workers: int) -> Html:
    suspects = diagnosis.suspects
    if suspects is None:
        text = "After training, the labels can be compared with what the detector finds:"
        line = f"boxcrew doctor data={diagnosis.path} run=runs/detect/train"
        return join(element("p", text), element("p", element("code", line)))
    if not suspects:
        return element("p", "None: the detector contradicts no label of a class that it knows well.")
    text = (
        f"Labels that the detector of {diagnosis.run} contradicts, the most doubtful first. Either may be "
        "right: a detector makes errors of its own, and repeats those that it has learned."
    )
    parts = [element("p", text), legend((_LABEL, "as labeled"), (_DETECTED, "as found"))]
    records = {record.key: record for record in diagnosis.records}
    for kind in KINDS:
        if members := [suspect for suspect in suspects if suspect.kind == kind]:
            shown = [_thumbnail(diagnosis, records[each.key], each) for each in members[:_MAX_SUSPECTS]]
            more = f", {len(shown)} of {len(members)}" if len(members) > len(shown) else ""
            figures = render_figures(shown, workers=workers)
            parts.append(element("h3", f"{_TITLES[kind]}{more}"))
            parts.append(element("div", *figures, class_="gallery large"))
    return join(*parts)


def _thumbnail(diagnosis: Diagnosis, record: Record, suspect: Suspect) -> Thumbnail:
    frames = []
    if suspect.label is not None:
        frames.append(Frame(box=suspect.box, color=_LABEL))
    if suspect.detected_box is not None:
        frames.append(Frame(box=suspect.detected_box, color=_DETECTED))
    left, top, right, bottom = zip(*(frame.box for frame in frames), strict=True)
    words = sentence(suspect)
    return Thumbnail(
        read=partial(diagnosis.source.read, record),
        alt=f"{record.key}: {words}",
        frames=tuple(frames),
        around=(min(left), min(top), max(right), max(bottom)),
        side=280,
        caption=element("figcaption", element("b", words), f" {suspect.key} ({suspect.split})"),
    )


def sentence(suspect: Suspect) -> str:
    """Return what the label and the detector say."""
    sure = f"{min(suspect.score, 0.99):.0%} sure".replace("%", " %")
    match suspect.kind:
        case "missing-label":
            return f"not labeled; the detector is {sure} of '{suspect.detected}'"
        case "wrong-class":
            return f"labeled '{suspect.label}'; the detector is {sure} of '{suspect.detected}'"
        case "wrong-box":
            return f"labeled '{suspect.label}'; the detector is {sure} of it, but elsewhere"
        case "unfindable":
            return f"labeled '{suspect.label}'; the detector finds no such object here"
