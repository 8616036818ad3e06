"""Large sets: opening of COCO JSON with many boxes, and images from the shards of a bucket against files.

`python -m bench elastic_data images=1000000` measures a million images with ten boxes each.
`python -m bench.elastic_data open FOLDER CACHE` and `… read WHERE DISK` are one measurement in a process.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from bench.child import in_child
from bench.row import Row, alternate_figures
from boxcrew.core.storage.address import Url
from boxcrew.data.checks.scan import scan
from boxcrew.data.detection.opening import OpenRequest, open_columns, open_scanned
from boxcrew.data.detection.packing import pack
from boxcrew.data.detection.records import Records
from boxcrew.data.detection.source import SOURCES, open_source
from boxcrew.data.images.reading import encode_image

COMMAND = "python -m bench elastic_data"
BOXES, SIZE, MOST_LINKS = 10, (48, 48), 60_000
PHOTOS, PHOTO_SIZE, PASSES = 600, (640, 480), 4
AIM_FIRST, AIM_AGAIN, AIM_PEAK, AIM_RESIDENT = 15.0, 1.0, 2.0, 0.5
_GIB = 2**30


def rows(images: int = 100_000) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [*_opening(folder / "coco", folder / "cache", images), _shards(folder)]


def _opening(root: Path, cache: Path, images: int) -> list[Row]:
    num_bytes = write_coco(root, images)
    first, again = (in_child("elastic_data", "open", str(root), str(cache)) for _ in range(2))
    what = f"COCO JSON of {images:,} images with {images * BOXES:,} boxes"
    detail = (
        f"{num_bytes / 2**20:,.0f} MiB of JSON, hard links of a tiny JPEG, files in the page cache; "
        f"{first['cpu']:.1f} and {again['cpu']:.1f} s of CPU; the scan after it {first['scan']:.1f} s "
        f"and {again['scan']:.1f} s; load {os.getloadavg()[0]:.1f}"
    )
    return [
        Row(
            what=f"{what}, opened for the first time and again",
            ours=f"{first['open']:.1f} s and {again['open']:.2f} s",
            theirs=f"aim for a million: {AIM_FIRST:.0f} s and {AIM_AGAIN:.0f} s",
            verdict=_met(first["open"] <= AIM_FIRST and again["open"] <= AIM_AGAIN),
            command=COMMAND,
            detail=detail,
        ),
        Row(
            what=f"{what}, memory",
            ours=f"peak {first['peak']:.2f} GiB, then {again['own']:.2f} GiB a process and "
            f"{again['shared']:.2f} GiB a computer; {again['worker'] * 1024:.0f} MiB a loader worker",
            theirs=f"aim for a million: peak {AIM_PEAK:.0f} GiB, {AIM_RESIDENT} GiB a computer",
            verdict=_met(first["peak"] <= AIM_PEAK and again["own"] + again["shared"] <= AIM_RESIDENT),
            command=COMMAND,
            detail="more than the process has before; shared pages are those of the mapped columns",
        ),
    ]


def write_coco(root: Path, images: int) -> int:
    """Write a COCO set whose images are links of one file; return the bytes of its JSON."""
    (root / "images").mkdir(parents=True)
    draw = np.random.default_rng(0)
    encoded = encode_image(draw.integers(0, 256, (SIZE[1], SIZE[0], 3), dtype=np.uint8))
    with (root / "train.json").open("w") as file:
        file.write('{"info": {"year": 2026}, "images": [')
        for number in range(images):
            name = root / "images" / f"{number:09d}.jpg"
            if number % MOST_LINKS == 0:
                original = name
                original.write_bytes(encoded)
            else:
                os.link(original, name)
            comma = "," if number else ""
            image = {"id": number, "file_name": name.name, "width": SIZE[0], "height": SIZE[1]}
            file.write(comma + json.dumps(image))
        file.write('], "annotations": [')
        for start in range(0, images * BOXES, 10_000):
            corners = draw.uniform(0, 30, (10_000, 2)).round(2).tolist()
            sides = draw.uniform(2, 18, (10_000, 2)).round(2).tolist()
            numbers = range(start, min(start + 10_000, images * BOXES))
            lines = [
                f'{{"id": {n}, "image_id": {n // BOXES}, "category_id": {n % 80 + 1}, '
                f'"bbox": [{x}, {y}, {w}, {h}], "area": {w * h:.2f}, "iscrowd": 0, "segmentation": []}}'
                for n, (x, y), (w, h) in zip(numbers, corners, sides, strict=False)
            ]
            file.write(("," if start else "") + ",".join(lines))
        categories = [{"id": n + 1, "name": f"class {n:02d}", "supercategory": "thing"} for n in range(80)]
        file.write(f'], "categories": {json.dumps(categories)}}}')
    return (root / "train.json").stat().st_size


def measure_opening(root: Path, cache: Path) -> dict[str, float]:
    """Return seconds, and GiB of memory above what the process has before. Imports are not counted."""
    for name in SOURCES.names():
        SOURCES.get(name)
    before, _ = _resident()
    cpu, wall = time.process_time(), time.perf_counter()
    source = open_columns(OpenRequest(path=str(root)), cache / "columns")
    opened, used = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    records = source.records
    assert sum(len(record.target) for record in records) == len(records) * BOXES  # all pages are mapped
    own, shared = _resident()
    worker = _worker_memory(records)
    begun = time.perf_counter()
    scan(source, workers=os.cpu_count() or 1, cache=cache / "scan")
    figures = {"peak": peak, "own": own - before, "shared": shared, "worker": worker}
    gib = {name: value / _GIB for name, value in figures.items()}
    return {"open": opened, "cpu": used, "scan": time.perf_counter() - begun, **gib}


def _resident() -> tuple[int, int]:
    """Return the bytes in memory that are this process's own, and those of mapped columns."""
    own = shared = 0
    is_column = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, value = line.partition(":")
        if "-" in name.split(" ")[0]:
            is_column = line.endswith(".npy")
        elif name == "Rss" and is_column:
            shared += int(value.split()[0]) * 1024
        elif name == "Rss":
            own += int(value.split()[0]) * 1024
    return own, shared


def _worker_memory(records: Records) -> int:
    """Return the bytes that a forked process has of its own after it has used all records."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        before = _private()
        for _ in records:
            pass
        os.write(writing, str(_private() - before).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return int(os.read(reading, 64))


def _private() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def _shards(folder: Path) -> Row:
    """Compare images of the shards of a bucket, kept on the disk, with those of a folder."""
    photos = folder / "photos"
    _write_photos(photos)
    with _server() as url:
        source = open_scanned(OpenRequest(path=str(photos)), workers=2, cache=folder / "cache2")
        pack(source, Url.of(f"{url}/photos"), shard_bytes=8_000_000)
        home = folder / "home"
        cold = in_child("elastic_data", "read", f"{url}/photos", home=home)
        local, warm = alternate_figures(
            [
                partial(in_child, "elastic_data", "read", str(photos), home=home),
                partial(in_child, "elastic_data", "read", f"{url}/photos", home=home),
            ],
            repeats=5,
        )
    ratio = warm["speed"] / local["speed"]
    return Row(
        what=f"{PHOTOS} photos from shards on a local S3 server, kept on the disk, against files",
        ours=f"{warm['speed']:,.0f} images/s",
        theirs=f"{local['speed']:,.0f} images/s from files; aim: 0.9 x",
        verdict=f"{_met(ratio >= 0.9)}: {ratio:.2f} x",
        command=COMMAND,
        detail=f"read, decoded and in batches of 16, in one process, medians of 5 taking turns; "
        f"{cold['speed']:,.0f} images/s in the first epoch, from the server on the same cores",
    )


def _write_photos(root: Path) -> None:
    draw = np.random.default_rng(0)
    (root / "images").mkdir(parents=True)
    images, annotations = list[object](), list[object]()
    for number in range(PHOTOS):
        coarse = draw.integers(0, 256, (PHOTO_SIZE[1] // 8, PHOTO_SIZE[0] // 8, 3), dtype=np.uint8)
        photo = np.ascontiguousarray(np.kron(coarse, np.ones((8, 8, 1), dtype=np.uint8)))
        (root / "images" / f"{number}.jpg").write_bytes(encode_image(photo, quality=80))
        images.append({"id": number, "file_name": f"{number}.jpg", "width": 640, "height": 480})
        box = {"id": number, "image_id": number, "category_id": 1, "bbox": [20, 20, 300, 200]}
        annotations.append(box)
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "thing"}]}
    (root / "train.json").write_text(json.dumps(content))


def measure_reading(where: str) -> dict[str, float]:
    """Return images a second of some epochs, in the order of training."""
    from boxcrew.core.input_size import InputSize
    from boxcrew.data.loading.detection_samples import DetectionSamples
    from boxcrew.data.loading.loader import TrainLoader
    from boxcrew.data.loading.order import SampleOrder
    from boxcrew.data.transforms.pipeline import TransformsConfig, train_pipeline

    source = open_source(where)
    train = source.split("train")
    pipeline = train_pipeline(TransformsConfig(), InputSize.parse(320))
    loader = TrainLoader(DetectionSamples(source, train, pipeline), SampleOrder(len(train), 0), batch=16)
    steps = len(train) // 16
    begun = time.perf_counter()
    for batch in loader.batches(0, steps):
        assert not batch.skipped, batch.skipped
    return {"speed": steps * 16 / (time.perf_counter() - begun)}


@contextmanager
def _server() -> Iterator[str]:
    """Run a local S3 server with a bucket, which this process and its children find; yield its URL."""
    from tests.helpers.s3 import serving

    with serving() as server:
        server.make_bucket("bench-bucket")
        yield "s3://bench-bucket"


def _met(reached: object) -> str:
    return "met" if reached else "missed"


if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    if kind == "open":
        print(json.dumps(measure_opening(Path(words[0]), Path(words[1]))))
    else:
        print(json.dumps(measure_reading(words[0])))
