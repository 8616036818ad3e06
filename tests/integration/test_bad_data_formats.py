"""Defects that only COCO or YOLO files can have, planted in a real set: each is named with file and place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from boxcrew.data.checks.scan import scan
from boxcrew.data.detection.source import Source, open_source
from boxcrew.data.detection.writers import write_source
from tests.helpers.damage import VocSet


def looked_at(root: Path, cache: Path) -> Source:
    return scan(open_source(root), workers=2, cache=cache)


def leave_a_gap(content: dict[str, Any]) -> None:
    """In the ids of categories."""
    last = content["categories"][-1]
    for thing in content["annotations"]:
        if thing["category_id"] == last["id"]:
            thing["category_id"] += 5
    last["id"] += 5


def test_defects_of_coco(real: VocSet, tmp_path: Path) -> None:
    write_source(open_source(real.root), tmp_path / "coco", format="coco")
    files = {s: tmp_path / "coco" / "annotations" / f"instances_{s}.json" for s in ("train", "val")}
    contents = {split: json.loads(file.read_text()) for split, file in files.items()}
    images, things = contents["train"]["images"], contents["train"]["annotations"]
    images.append({**images[0], "file_name": "again.jpg"})
    images[1]["file_name"] = "../../secret.jpg"
    images[2]["file_name"] = "gone.jpg"
    things.append({**things[0], "id": "lone", "image_id": 10**6})
    things.append({**things[0], "id": "odd", "category_id": 99})
    things.append(dict(things[0]))
    for split, content in contents.items():
        leave_a_gap(content)
        files[split].write_text(json.dumps(content))
    source = looked_at(tmp_path / "coco", tmp_path / "cache")
    place = "annotations/instances_train.json"
    assert {(p.kind, p.at) for p in source.problems if p.file == place} == {
        ("duplicate-id", f"image number {len(images) - 1}"),
        ("missing-file", f"image {images[1]['id']}"),
        ("missing-file", f"image {images[2]['id']}"),
        ("annotation-without-image", "annotation lone"),
        ("unknown-class", "annotation odd"),
        ("duplicate-id", f"annotation {things[0]['id']}"),
        ("class-id-gap", ""),
    }
    # The images that are listed under wrong names now:
    assert [p.kind for p in source.problems if p.file != place] == ["image-without-annotation"] * 2


def test_defects_of_yolo(real: VocSet, tmp_path: Path) -> None:
    root = tmp_path / "yolo"
    write_source(open_source(real.root), root, format="yolo")
    labels = sorted((root / "labels" / "train").iterdir())
    labels[0].unlink()
    labels[1].write_text("")
    labels[2].write_text("0 0.5 0.5 nan 0.1\n7 0.5 0.5 0.2 0.2\n99 0.5 0.5 0.2 0.2\nbad\n")
    (root / "labels" / "train" / "lone.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    text = (root / "data.yaml").read_text()
    (root / "data.yaml").write_text(text.split("names:")[0] + "nc: 8\nnames: {0: juice, 7: chips}\n")
    source = looked_at(root, tmp_path / "cache")
    places = {(p.kind, p.file.removeprefix("labels/train/"), p.at) for p in source.problems}
    assert places == {
        ("class-id-gap", "data.yaml", ""),
        ("image-without-annotation", f"images/train/{labels[0].stem}.jpg", ""),
        ("empty-annotation", labels[1].name, ""),
        ("box-nan", labels[2].name, "line 1"),
        ("unknown-class", labels[2].name, "line 3"),
        ("box-malformed", labels[2].name, "line 4"),
        ("annotation-without-image", "lone.txt", ""),
    }
