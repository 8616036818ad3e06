"""Run by the interpreter of Ultralytics: YOLO11n from random weights, trained for a given time with all that
it has by default: DATA_YAML OUT SECONDS SIZE EVALUATIONS THREADS.

Its detections on `val` are written to OUT several times; that time is not counted as training.
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
    """Writes the detections of a training at regular intervals."""

    def __init__(self, package: Any, torch: Any, photos: Path, out: Path) -> None:
        self._package, self._torch = package, torch
        self._photos, self._out = photos, out
        self.evaluations: list[dict[str, Any]] = []
        self.elapsed = 0.0  # seconds of training

    def track(self, model: Any, *, seconds: float, num: int, threads: int) -> None:
        """Add callbacks to a model. They set `threads`, because Ultralytics leaves one CPU core idle."""

        def start(trainer: Any) -> None:  # noqa: ARG001
            self._torch.set_num_threads(threads)

        def after_epoch(trainer: Any) -> None:
            begun = time.time()
            self.elapsed = begun - trainer.train_time_start
            if self.elapsed >= seconds * (len(self.evaluations) + 1) / num and not trainer.stop:
                self.evaluate(trainer)
                self._torch.set_num_threads(threads)
                trainer.train_time_start += time.time() - begun
                trainer.epoch_time_start += time.time() - begun

        model.add_callback("on_train_start", start)
        model.add_callback("on_train_epoch_end", after_epoch)
        model.add_callback("on_train_end", self.evaluate)

    def evaluate(self, trainer: Any) -> None:
        if self.evaluations and self.evaluations[-1]["seconds"] == self.elapsed:
            return  # the last epoch was evaluated already
        model = self._package.YOLO(NETWORK)
        model.model = copy.deepcopy(trainer.ema.ema)
        results = model.predict(
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
            Path(result.path).stem: {
                "boxes": result.boxes.xyxy.tolist(),
                "scores": result.boxes.conf.tolist(),
                "labels": result.boxes.cls.int().tolist(),
            }
            for result in results
        }
        file = self._out / f"{len(self.evaluations)}.json"
        file.write_text(json.dumps(boxes))
        self.evaluations.append({"seconds": self.elapsed, "file": str(file)})


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
    print(json.dumps({"evaluations": watch.evaluations, "version": package.__version__, "epochs": epochs}))


if __name__ == "__main__":
    main(sys.argv[1:])
