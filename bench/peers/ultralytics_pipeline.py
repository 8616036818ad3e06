"""Run by the interpreter of Ultralytics: its training batches of the set at DATA_YAML, with the augmentation
it has by default, made in this process: DATA_YAML SIZE BATCH UNCOUNTED COUNTED, the last two in batches.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from itertools import count, islice
from pathlib import Path


def main(file: Path, size: int, batch: int, uncounted: int, counted: int) -> None:
    build = importlib.import_module("ultralytics.data.build")
    utils = importlib.import_module("ultralytics.data.utils")
    config = importlib.import_module("ultralytics.cfg")
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    settings = config.get_cfg(overrides={"imgsz": size, "batch": batch, "workers": 0, "cache": False})
    data = utils.check_det_dataset(str(file), autodownload=False)
    dataset = build.build_yolo_dataset(settings, data["train"], batch, data, mode="train")
    loader = build.build_dataloader(dataset, batch, workers=0, shuffle=True, drop_last=True, device="cpu")
    endless = (made for _ in count() for made in loader)
    for _ in islice(endless, uncounted):
        pass
    wall, cpu = time.perf_counter(), time.process_time()
    num_images = sum(len(made["img"]) for made in islice(endless, counted))
    figures = {
        "images_per_second": num_images / (time.perf_counter() - wall),
        "cpu_seconds_per_image": (time.process_time() - cpu) / num_images,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
