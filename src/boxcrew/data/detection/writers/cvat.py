"""Writer of CVAT for images 1.1: `annotations.xml` and `images/<subset>/`, as CVAT exports a project."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

from boxcrew.data.checks.problem import Problem
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.data.detection.writers import WRITERS, ImageWriter

_SUBSETS = {"train": "Train", "val": "Validation", "test": "Test"}  # as CVAT calls them


@WRITERS.register("cvat")
def write_cvat(source: Source, out: Path, images: ImageWriter) -> tuple[Problem, ...]:
    """Write CVAT. `difficult` and `is_crowd` are attributes, of the names that CVAT's own imports use."""
    root = Element("annotations")
    SubElement(root, "version").text = "1.1"
    project = SubElement(SubElement(root, "meta"), "project")
    SubElement(project, "name").text = out.name
    SubElement(project, "subsets").text = "\n".join(_SUBSETS[split] for split in source.splits)
    labels = SubElement(project, "labels")
    for name in source.classes:
        _add_label(labels, name)
    for split, records in source.splits.items():
        for record in records:
            name = images.write(record, out / "images" / _SUBSETS[split])
            _add_image(root, record, name, _SUBSETS[split], source.classes)
    tree = ElementTree(root)
    indent(tree)
    tree.write(out / "annotations.xml", encoding="utf-8", xml_declaration=True)
    return ()


def _add_label(labels: Element, name: str) -> None:
    label = SubElement(labels, "label")
    SubElement(label, "name").text = name
    SubElement(label, "type").text = "any"
    attributes = SubElement(label, "attributes")
    for flag in ("difficult", "is_crowd"):
        attribute = SubElement(attributes, "attribute")
        fields = {"name": flag, "mutable": "False", "input_type": "checkbox"}
        for tag, text in (fields | {"default_value": "false", "values": "false"}).items():
            SubElement(attribute, tag).text = text


def _add_image(root: Element, record: Record, name: str, subset: str, classes: tuple[str, ...]) -> None:
    number = str(len(root) - 2)  # after version and meta
    size = {"width": str(record.width), "height": str(record.height)}
    image = SubElement(root, "image", {"id": number, "name": name, "subset": subset, **size})
    target = record.target
    rows = zip(target.boxes, target.labels, target.difficult, target.crowd, strict=True)
    for box, label, difficult, crowd in rows:
        sides = zip(("xtl", "ytl", "xbr", "ybr"), map(str, box.tolist()), strict=True)
        fields = {"label": classes[label], "source": "manual", "occluded": "0", **dict(sides), "z_order": "0"}
        item = SubElement(image, "box", fields)
        for flag, is_set in (("difficult", difficult), ("is_crowd", crowd)):
            SubElement(item, "attribute", {"name": flag}).text = "true" if is_set else "false"
