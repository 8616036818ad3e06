"""What may be wrong in a data set though every file is sound, as parts of the doctor's page: images that look
alike in two splits, and labels that a trained detector contradicts.
"""

from __future__ import annotations

from functools import partial

from boxcrew.data.checks.near_duplicates import NearDuplicate
from boxcrew.data.detection.source import Record
from boxcrew.evaluate.detection.suspects import KINDS, Kind, Suspect
from boxcrew.report.doctor.markup import Html, element, join
from boxcrew.report.doctor.pictures import Frame, Shot, develop
from boxcrew.report.doctor.report import Diagnosis, counted
from boxcrew.report.plots.style import SERIES

_PAIRS = 12
_SUSPECTS_OF_A_KIND = 12
_LABEL, _FOUND = SERIES[1], SERIES[0]  # colours of what is labelled, and of what was found
_TITLES: dict[Kind, str] = {
    "missing-label": "Perhaps not labelled",
    "wrong-class": "Perhaps of another class",
    "wrong-box": "Perhaps not well around the object",
    "unfindable": "Labelled, but not found",
}


def duplicates_section(diagnosis: Diagnosis, *, workers: int) -> Html:
    pairs = diagnosis.near_duplicates
    if len(diagnosis.statistics) < 2:
        return element("p", "The set has one split: nothing can stand in two.")
    if not pairs:
        return element("p", "None: no image looks like one of another split.")
    records = {record.key: record for record in diagnosis.records}
    shown = pairs[:_PAIRS]
    shots = [
        Shot(read=partial(diagnosis.source.read, records[key]), alt=key, side=260)
        for pair in shown
        for key in (pair.first, pair.second)
    ]
    pictures = iter(develop(shots, workers=workers))
    cards = [_pair(pair, next(pictures), next(pictures)) for pair in shown]
    more = (
        f" The {len(shown)} most alike are shown; doctor.json names all." if len(pairs) > len(shown) else ""
    )
    text = (
        f"{counted(len(pairs), 'image looks', 'images look')} like one of another split "
        "though the files differ: saved again, resized, trimmed or mirrored. A detector that has seen one of "
        f"the two in training is not measured by the other.{more}"
    )
    return join(element("p", text), element("div", *cards, class_="pairs"))


def _pair(pair: NearDuplicate, first: Html | None, second: Html | None) -> Html:
    sides = ((pair.first, pair.first_split, first), (pair.second, pair.second_split, second))
    figures = [
        element("figure", picture, element("figcaption", element("b", split), f" {key}"))
        for key, split, picture in sides
        if picture is not None
    ]
    return element("div", *figures, class_="pair")


def suspects_section(diagnosis: Diagnosis, *, workers: int) -> Html:
    suspects = diagnosis.suspects
    if suspects is None:
        text = "Once there is a run, its detector can be held against the labels:"
        line = f"boxcrew doctor data={diagnosis.path} run=runs/detect/train"
        return join(element("p", text), element("p", element("code", line)))
    if not suspects:
        return element("p", "None: the detector contradicts no label of a class that it knows well.")
    legend = element(
        "div",
        element("span", element("span", class_="key", style=f"background:{_LABEL}"), "as labelled"),
        element("span", element("span", class_="key", style=f"background:{_FOUND}"), "as found"),
        class_="legend",
    )
    text = (
        f"What the detector of {diagnosis.run} contradicts, the most doubtful first. Either may be right: "
        "a detector makes errors of its own, and repeats those that it has learnt."
    )
    groups = [
        _group(diagnosis, kind, [one for one in suspects if one.kind == kind], workers=workers)
        for kind in KINDS
    ]
    return join(element("p", text), legend, *groups)


def _group(diagnosis: Diagnosis, kind: Kind, suspects: list[Suspect], *, workers: int) -> Html:
    if not suspects:
        return Html("")
    shown = suspects[:_SUSPECTS_OF_A_KIND]
    records = {record.key: record for record in diagnosis.records}
    pictures = develop([_shot(diagnosis, records[one.key], one) for one in shown], workers=workers)
    figures = [
        element("figure", picture, _caption(one))
        for one, picture in zip(shown, pictures, strict=True)
        if picture is not None
    ]
    more = f", {len(shown)} of {len(suspects)}" if len(suspects) > len(shown) else ""
    return join(element("h3", f"{_TITLES[kind]}{more}"), element("div", *figures, class_="gallery large"))


def _shot(diagnosis: Diagnosis, record: Record, one: Suspect) -> Shot:
    frames = []
    if one.label is not None:
        frames.append(Frame(box=one.box, colour=_LABEL))
    if one.found_box is not None:
        frames.append(Frame(box=one.found_box, colour=_FOUND))
    boxes = [frame.box for frame in frames]
    around = (
        min(box[0] for box in boxes),
        min(box[1] for box in boxes),
        max(box[2] for box in boxes),
        max(box[3] for box in boxes),
    )
    return Shot(
        read=partial(diagnosis.source.read, record),
        alt=f"{record.key}: {sentence(one)}",
        frames=tuple(frames),
        around=around,
        side=280,
    )


def _caption(one: Suspect) -> Html:
    return element("figcaption", element("b", sentence(one)), f" {one.key} ({one.split})")


def sentence(one: Suspect) -> str:
    """What label and detector say, in words."""
    sure = f"{min(one.score, 0.99):.0%} sure".replace("%", " %")
    match one.kind:
        case "missing-label":
            return f"not labelled; the detector is {sure} of '{one.found}'"
        case "wrong-class":
            return f"labelled '{one.label}'; the detector is {sure} of '{one.found}'"
        case "wrong-box":
            return f"labelled '{one.label}'; the detector is {sure} of it, but elsewhere"
        case "unfindable":
            return f"labelled '{one.label}'; the detector sees nothing of the kind here"
