"""Run by the interpreter of Ultralytics: YOLO11n from random weights, trained for a given time with all that
it has by default: DATA_YAML OUT SECONDS SIZE LOOKS THREADS.

What it finds on `val` is written to OUT several times on the way; that time is not counted as training.
"""

from __future__ import annotations

import copy
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

NETWORK = "yolo11n.yaml"


class Watch:
    """Looks at a training from outside, at even shares of its time."""

    def __init__(self, package: Any, torch: Any, photos: Path, out: Path) -> None:
        self._package, self._torch = package, torch
        self._photos, self._out = photos, out
        self.looks: list[dict[str, Any]] = []
        self.elapsed = 0.0  # seconds of training

    def track(self, model: Any, *, seconds: float, num: int, threads: int) -> None:
        """`threads`: on a CPU Ultralytics leaves one core out, which then has nothing to do."""

        def start(trainer: Any) -> None:  # noqa: ARG001
            self._torch.set_num_threads(threads)

        def after_epoch(trainer: Any) -> None:
            begun = time.time()
            self.elapsed = begun - trainer.train_time_start
            if self.elapsed >= seconds * (len(self.looks) + 1) / num and not trainer.stop:
                self.look(trainer)
                self._torch.set_num_threads(threads)
                trainer.train_time_start += time.time() - begun
                trainer.epoch_time_start += time.time() - begun

        model.add_callback("on_train_start", start)
        model.add_callback("on_train_epoch_end", after_epoch)
        model.add_callback("on_train_end", self.look)

    def look(self, trainer: Any) -> None:
        if self.looks and self.looks[-1]["seconds"] == self.elapsed:
            return  # the last epoch ended just in time and was looked at
        model = self._package.YOLO(NETWORK)
        model.model = copy.deepcopy(trainer.ema.ema)
        found = model.predict(
            str(self._photos),
            imgsz=trainer.args.imgsz,
            conf=0.001,
            iou=0.7,
            max_det=300,
            device="cpu",
            verbose=False,
            stream=True,
        )
        boxes = {
            Path(one.path).stem: {
                "boxes": one.boxes.xyxy.tolist(),
                "scores": one.boxes.conf.tolist(),
                "labels": one.boxes.cls.int().tolist(),
            }
            for one in found
        }
        file = self._out / f"{len(self.looks)}.json"
        file.write_text(json.dumps(boxes))
        self.looks.append({"seconds": self.elapsed, "file": str(file)})


def main(words: list[str]) -> None:
    data, out = Path(words[0]), Path(words[1])
    seconds, size, num, threads = float(words[2]), *map(int, words[3:])
    package = importlib.import_module("ultralytics")
    torch = importlib.import_module("torch")
    package.settings.update(sync=False)
    watch = Watch(package, torch, data.parent / "images" / "val", out)
    model = package.YOLO(NETWORK)
    watch.track(model, seconds=seconds, num=num, threads=threads)
    model.train(
        data=str(data),
        time=seconds / 3600,
        imgsz=size,
        pretrained=False,
        device="cpu",
        workers=1,
        amp=False,
        val=False,
        plots=False,
        project=str(out),
        name="run",
    )
    epochs = model.trainer.epoch + 1
    print(json.dumps({"looks": watch.looks, "version": package.__version__, "epochs": epochs}))


if __name__ == "__main__":
    main(sys.argv[1:])
