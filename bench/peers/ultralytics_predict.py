"""One photo from file to boxes by Ultralytics YOLO11n, as its own exporter writes it to ONNX."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from bench.timing import time_calls

SIZE = 256


def main(photo: str, folder: str) -> None:
    yolo = importlib.import_module("ultralytics").YOLO
    file = Path(folder) / "yolo11n.onnx"
    if not file.is_file():
        model = yolo("yolo11n.yaml")
        model.save(str(file.with_suffix(".pt")))
        yolo(str(file.with_suffix(".pt"))).export(format="onnx", imgsz=SIZE, dynamic=False, simplify=False)
    detector = yolo(str(file), task="detect")
    figures = time_calls(lambda: detector.predict(photo, imgsz=SIZE, verbose=False, device="cpu"))
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
