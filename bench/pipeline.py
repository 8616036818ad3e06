"""The input pipeline on one core: from files to collated batches, beside torchvision's and Ultralytics'.

`python -m bench.pipeline SIDE FOLDER SIZE` is one measurement in a separate process, SIDE being ours, pil
or tensor (torchvision's two backends); `rows` makes the sides take turns.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from bench.child import in_child, one_core
from bench.peers import is_installed, missing, run_peer
from bench.real_data import real_data
from bench.row import Row, alternate_figures, skipped
from bench.yolo_copy import copy_yolo

BATCH, UNCOUNTED, COUNTED = 16, 8, 32  # samples, batches, batches
COPIES = 8  # of the set: Ultralytics keeps 8 batches of decoded images, which is all of 128
COMMAND = "python -m bench pipeline"
Backend = Literal["pil", "tensor"]
Figures = dict[str, float]


def rows(*, repeats: int = 5) -> list[Row]:
    original = real_data("coco128_yolo")
    if original is None:
        return [skipped(what="input pipeline, one core", reason="no coco128_yolo", command=COMMAND)]
    with tempfile.TemporaryDirectory() as folder, one_core():
        root = Path(folder) / "coco"
        copy_yolo(original, root, copies=COPIES)
        once = Path(folder) / "once"
        copy_yolo(original, once)
        return [_against_torchvision(root, repeats), _against_ultralytics(root, once, repeats)]


def _against_torchvision(root: Path, repeats: int) -> Row:
    sides = [partial(in_child, "pipeline", side, str(root), "300") for side in ("ours", "pil", "tensor")]
    ours, pil, tensor = alternate_figures(sides, repeats=repeats)
    best, name = max((pil, "PIL"), (tensor, "tensors"), key=lambda side: side[0]["images_per_second"])
    return _row(
        "`coco128_yolo`, decode + SSD augmentation + 300 px, against torchvision v2's SSD preset",
        ours,
        best,
        aim=3.0,
        detail=f"torchvision on {name}, the faster of its backends here; medians of {repeats} processes",
    )


def _against_ultralytics(root: Path, once: Path, repeats: int) -> Row:
    what = "`coco128_yolo`, decode + augmentation + 320 px, against Ultralytics' dataset with its default"
    ours_alone = partial(in_child, "pipeline", "ours", str(root), "320")
    if not is_installed("ultralytics"):
        (ours,) = alternate_figures([ours_alone], repeats=repeats)
        return skipped(what=what, reason=missing("ultralytics"), ours=_speed(ours), command=COMMAND)
    sides = [ours_alone, partial(_ultralytics, root), partial(_ultralytics, once)]
    ours, theirs, kept = alternate_figures(sides, repeats=repeats)
    detail = (
        f"with mosaic, for which Ultralytics keeps the last {8 * BATCH} images decoded: all of a set as "
        f"small as this one ({_speed(kept)} then), so it was copied {COPIES} times; medians of "
        f"{repeats} processes"
    )
    return _row(what, ours, theirs, aim=1.5, detail=detail)


def _ultralytics(root: Path) -> Figures:
    words = (str(root / "data.yaml"), "320", str(BATCH), str(UNCOUNTED), str(COUNTED))
    return run_peer("ultralytics", "ultralytics_pipeline", *words)


def _row(what: str, ours: Figures, theirs: Figures, *, aim: float, detail: str) -> Row:
    ratio = ours["images_per_second"] / theirs["images_per_second"]
    return Row(
        what=f"input pipeline on {what}",
        ours=_speed(ours),
        theirs=_speed(theirs),
        verdict=f"{ratio:.2f} x (aim: {aim:g} x)",
        command=COMMAND,
        detail=f"{detail}, taking turns, each held to one core; files in the page cache, up to a collated "
        f"batch of {BATCH}; {1000 * ours['cpu_seconds_per_image']:.2f} ms of CPU an image against "
        f"{1000 * theirs['cpu_seconds_per_image']:.2f}",
    )


def _speed(figures: Figures) -> str:
    return f"{figures['images_per_second']:.0f} images/s"


def measure_ours(root: Path, size: int) -> Figures:
    import cv2
    import torch

    from boxcrew.core.input_size import InputSize
    from boxcrew.data.detection.source import open_source
    from boxcrew.data.loading.detection_samples import DetectionSamples
    from boxcrew.data.loading.loader import TrainLoader
    from boxcrew.data.loading.order import SampleOrder
    from boxcrew.data.loading.workers import Workers
    from boxcrew.data.transforms.pipeline import TransformsConfig, train_pipeline
    from boxcrew.deploy.memory import keep_freed_memory

    # As in our loader processes.
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    keep_freed_memory()
    source = open_source(root)
    records = source.split("train")
    pipeline = train_pipeline(TransformsConfig(), InputSize((size,)))
    samples = DetectionSamples(source, records, pipeline)
    loader = TrainLoader(samples, SampleOrder(len(records), seed=0), batch=BATCH, workers=Workers(num=0))
    return time_batches(loader.batches())


def measure_torchvision(backend: Backend, root: Path, size: int) -> Figures:
    import torch
    from torch.utils.data import DataLoader

    from bench.torchvision_data import Photos, as_batch, preset
    from boxcrew.data.detection.source import open_source

    torch.set_num_threads(1)
    records = open_source(root).split("train")
    photos = Photos(records, preset("ssd", backend=backend, size=size), backend=backend)
    loader = DataLoader(photos, batch_size=BATCH, shuffle=True, drop_last=True, collate_fn=as_batch)
    return time_batches(iter(loader))


def time_batches(batches: Iterator[Any]) -> Figures:
    for _ in islice(batches, UNCOUNTED):
        pass
    wall, cpu = time.perf_counter(), time.process_time()
    num_images = BATCH * sum(1 for _ in islice(batches, COUNTED))
    return {
        "images_per_second": num_images / (time.perf_counter() - wall),
        "cpu_seconds_per_image": (time.process_time() - cpu) / num_images,
    }


if __name__ == "__main__":
    sides: dict[str, Callable[[Path, int], Figures]] = {
        "ours": measure_ours,
        "pil": partial(measure_torchvision, "pil"),
        "tensor": partial(measure_torchvision, "tensor"),
    }
    print(json.dumps(sides[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))))
