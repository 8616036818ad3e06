"""Writer of Pascal VOC in the layout of the devkit, with the classes in `classes.txt`."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

from boxcrew.data.checks.problem import Problem
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.data.detection.writers import WRITERS, ImageWriter, lost_flags, write_classes, write_lines


@WRITERS.register("voc")
def write_voc(source: Source, out: Path, images: ImageWriter) -> tuple[Problem, ...]:
    annotations, lists = out / "Annotations", out / "ImageSets" / "Main"
    annotations.mkdir()
    lists.mkdir(parents=True)
    write_classes(out, source.classes)
    stems = images.stems
    for split, records in source.splits.items():
        write_lines(lists / f"{split}.txt", [stems[record.key] for record in records])
        for record in records:
            name = images.write(record, out / "JPEGImages")
            tree = ElementTree(_xml(record, name, source.classes))
            indent(tree)
            tree.write(annotations / f"{stems[record.key]}.xml", encoding="utf-8")
    return lost_flags(source, out, "crowd")


def _xml(record: Record, name: str, classes: tuple[str, ...]) -> Element:
    root = Element("annotation")
    _fill(root, folder="JPEGImages", filename=name)
    _fill(SubElement(root, "size"), width=record.width, height=record.height, depth=3)
    _fill(root, segmented=0)
    target = record.target
    for box, label, difficult in zip(target.boxes, target.labels, target.difficult, strict=True):
        item = SubElement(root, "object")
        _fill(item, name=classes[label], pose="Unspecified", truncated=0, difficult=int(difficult))
        # Other readers of VOC expect integers.
        xmin, ymin, xmax, ymax = (int(side) if side.is_integer() else side for side in box.tolist())
        _fill(SubElement(item, "bndbox"), xmin=xmin, ymin=ymin, xmax=xmax, ymax=ymax)
    return root


def _fill(element: Element, **children: object) -> None:
    for tag, value in children.items():
        SubElement(element, tag).text = str(value)
