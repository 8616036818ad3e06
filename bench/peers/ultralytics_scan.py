"""Run by the interpreter of Ultralytics: its check of the data set at DATA_YAML, seconds of the first pass.

Imports are not counted, nor their cache of an earlier pass used.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path


def main(file: Path) -> None:
    utils = importlib.import_module("ultralytics.data.utils")
    dataset = importlib.import_module("ultralytics.data.dataset")
    package = importlib.import_module("ultralytics")
    package.settings.update(sync=False)
    utils.check_det_dataset(str(file), autodownload=False)  # the first call imports what it needs
    for cache in (file.parent / "labels").glob("*.cache"):
        cache.unlink()
    wall, cpu = time.perf_counter(), time.process_time()
    data = utils.check_det_dataset(str(file), autodownload=False)
    splits = [
        dataset.YOLODataset(img_path=data[split], data=data, augment=False, task="detect")
        for split in ("train", "val")
    ]
    seconds = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    images = sum(len(split.labels) for split in splits)
    print(json.dumps({**seconds, "images": images, "version": package.__version__}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
