"""Copies of a YOLO set that may be written to: peers leave caches beside the labels."""

from __future__ import annotations

from pathlib import Path


def copy_yolo(original: Path, root: Path, *, copies: int = 1) -> int:
    """`copies` of every image with its labels, each with another comment so that no two files are the same;
    gives their number.
    """
    images = sorted(original.glob("images/*/*.jpg"))
    for image in images:
        labels = original / "labels" / image.parent.name / f"{image.stem}.txt"
        data = image.read_bytes()
        behind = 4 + int.from_bytes(data[4:6])  # the first segment
        for kind in ("images", "labels"):
            (root / kind / image.parent.name).mkdir(parents=True, exist_ok=True)
        for i in range(copies):
            comment = b"\xff\xfe" + (3 + i).to_bytes(2) + bytes(1 + i)
            copy = root / "images" / image.parent.name / f"{image.stem}_{i}.jpg"
            copy.write_bytes(data[:behind] + comment + data[behind:])
            if labels.is_file():
                (root / "labels" / image.parent.name / f"{copy.stem}.txt").write_bytes(labels.read_bytes())
    lines = (original / "data.yaml").read_text().splitlines()
    kept = [line for line in lines if not line.startswith("path:")]
    (root / "data.yaml").write_text("\n".join([f"path: {root}", *kept]) + "\n")  # Ultralytics wants it whole
    return len(images) * copies
