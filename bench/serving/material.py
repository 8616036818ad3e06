"""The model and the photos: a detector that is trained once for three minutes and kept, and real photos.

The detector is one that integers of 8 bits suit. `starter` is not: after three minutes its AP fell from 0.26
to 0.02.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from bench.child import boxcrew, train
from bench.real_data import real_data
from boxcrew.core.cache import cache_folder

SET = "groceries8_voc"
"""The set that the photos are from."""
RECIPE, TRAINED_ON, MINUTES = "ssdlite_efficientnet_lite0", "shelf", 3
MEGAPIXEL, SMALL = (1280, 960), (320, 240)

_NUM_PHOTOS = 8
_QUALITY = 85


@dataclass(frozen=True, kw_only=True)
class Material:
    """The models that are served, and the photos that are sent."""

    run: Path
    fp32: Path
    int8: Path
    photos: tuple[Path, ...]  # JPEG files of one megapixel
    small: tuple[Path, ...]

    @property
    def photo(self) -> bytes:
        return self.photos[0].read_bytes()

    def describe(self) -> str:
        kilobytes = sum(path.stat().st_size for path in self.photos) / len(self.photos) / 1000
        width, height = MEGAPIXEL
        photos = f"JPEGs of {width} x {height}, {kilobytes:.0f} kB on average"
        report = json.loads(self.int8.with_suffix(".report.json").read_text())
        scores = f"AP {report['torch']['AP']:.3f}, int8 {report['exported']['AP']:.3f}"
        return f"{photos}; `{RECIPE}`, {MINUTES} minutes on `{TRAINED_ON}`, {scores}"


def material() -> Material | None:
    """Return what is needed, made if it is not there; None without the data set."""
    data, cache = real_data(SET), cache_folder("bench-serve")
    if data is None or cache is None:
        return None
    run = cache / "run"
    if not (run / "summary.json").is_file():
        train(run, RECIPE, f"data={TRAINED_ON}", f"time={MINUTES}m", "summaries.histograms=false")
    for name, words in (("model", ()), ("model-int8", ("int8=true",))):
        if not (run / "export" / f"{name}.onnx").is_file():
            subprocess.run(boxcrew("export", f"run={run}", *words), check=True, stdout=sys.stderr)
    return Material(
        run=run,
        fp32=run / "export" / "model.onnx",
        int8=run / "export" / "model-int8.onnx",
        photos=_photos(cache, data, MEGAPIXEL),
        small=_photos(cache, data, SMALL),
    )


def _photos(cache: Path, data: Path, size: tuple[int, int]) -> tuple[Path, ...]:
    """Return photos of one size, each of four of the set, side by side."""
    paths = tuple(cache / f"{size[0]}-{number}.jpg" for number in range(_NUM_PHOTOS))
    files = sorted((data / "JPEGImages").iterdir())
    for number, path in enumerate(paths):
        if path.is_file():
            continue
        tile = (size[0] // 2, size[1] // 2)
        images = [cv2.resize(cv2.imread(str(file)), tile) for file in files[4 * number : 4 * number + 4]]
        photo = np.vstack([np.hstack(images[:2]), np.hstack(images[2:])])
        cv2.imwrite(str(path), photo, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    return paths
