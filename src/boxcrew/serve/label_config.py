"""Reads what a project of Label Studio labels: which boxes of which image, and under which names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boxcrew.data.detection.safe_xml import XML_ERRORS, parse_xml
from boxcrew.serve.json_body import bad_request

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_MOST_LETTERS = 200_000  # of a configuration
_ADVICE = (
    'the labeling interface needs <Image name="image" value="$image"/> and '
    '<RectangleLabels name="label" toName="image"> with a <Label> for each class'
)


@dataclass(frozen=True, kw_only=True)
class BoxControl:
    """A tag of boxes with labels, and the image that it belongs to."""

    name: str
    image: str  # name of the image's tag
    key: str  # under which tasks have the image
    threshold: float | None  # score from which on boxes are wanted, if the tag says so
    labels: Mapping[int, str]  # by class; other classes are not wanted


def read_label_config(text: str, classes: Sequence[str]) -> list[BoxControl]:
    """Return the tags of a labeling configuration that take boxes of these classes, at least one."""
    if len(text) > _MOST_LETTERS:
        raise bad_request(f"the label config has more than {_MOST_LETTERS:,} letters")
    try:
        root = parse_xml(text.encode())
    except XML_ERRORS:
        message = "the label config is not plain XML"
        raise bad_request(message, advice="it may have no entities; " + _ADVICE) from None
    images = {tag.get("name", ""): tag for tag in root.iter("Image")}
    controls = [_control(tag, images, classes) for tag in root.iter("RectangleLabels")]
    if not controls:
        raise bad_request("the label config has no RectangleLabels", advice=_ADVICE)
    if wanted := [control for control in controls if control.labels]:
        return wanted
    names = ", ".join(classes[:20])
    advice = f'name a label as the model does, or give it predicted_values="CLASS,…": {names}'
    raise bad_request("no label of the label config is a class of the model", advice=advice)


def _control(tag: Element, images: Mapping[str, Element], classes: Sequence[str]) -> BoxControl:
    name, image = tag.get("name", ""), tag.get("toName", "")
    if not name or image not in images:
        raise bad_request("RectangleLabels: its name or the Image of its toName is missing", advice=_ADVICE)
    key = images[image].get("value", "")
    if not key.startswith("$") or len(key) == 1:
        raise bad_request("Image: value is not the name of a task's field, such as $image", advice=_ADVICE)
    return BoxControl(
        name=name, image=image, key=key[1:], threshold=_threshold(tag), labels=_labels(tag, classes)
    )


def _threshold(tag: Element) -> float | None:
    text = tag.get("model_score_threshold")
    try:
        threshold = None if text is None else float(text)
    except ValueError:
        threshold = -1.0
    if threshold is not None and not 0 <= threshold <= 1:
        raise bad_request("model_score_threshold: is not a number from 0 to 1")
    return threshold


def _labels(tag: Element, classes: Sequence[str]) -> dict[int, str]:
    """Return the label of each class: the one that names it exactly, else one with other capitals."""
    labels: dict[int, str] = {}
    for fold in (str, str.casefold):
        numbers: dict[str, int] = {}
        for number, name in enumerate(classes):
            numbers.setdefault(fold(name), number)
        for label in tag.iter("Label"):
            written = label.get("alias") or label.get("value") or ""
            for name in _names(label) if written else ():
                if (found := numbers.get(fold(name))) is not None:
                    labels.setdefault(found, written)
    return labels


def _names(label: Element) -> Iterator[str]:
    """Yield the classes that a label may stand for."""
    yield from (name.strip() for name in label.get("predicted_values", "").split(",") if name.strip())
    yield from (name for name in (label.get("value"), label.get("alias")) if name)
