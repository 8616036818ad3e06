"""The model and the photos: a detector, trained once for a few epochs and kept, and photos like its own.

The detector is one that integers of 8 bits suit. `starter` is not: after three minutes on a real set its AP
fell from 0.26 to 0.02. Epochs are counted, not minutes, so that it is as good on a slow machine.
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
from boxcrew.cli.sample_photos import write_samples
from boxcrew.core.cache import cache_folder

RECIPE, SET, EPOCHS = "ssdlite_efficientnet_lite0", "shelf", 6
MEGAPIXEL, SMALL = (1280, 960), (320, 240)

_QUALITY, _NOISE = 88, 3.0  # of the JPEGs; the deviation of a sensor, in levels


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
        return f"{photos}; `{RECIPE}`, {EPOCHS} epochs on `{SET}`, {scores}"


def material() -> Material | None:
    """Return what is needed, made if it is not there; None without a home to keep it in."""
    cache = cache_folder("bench-serve")
    if cache is None:
        return None
    run, samples = cache / f"{RECIPE}-{SET}-{EPOCHS}", cache / "samples"
    if not (run / "summary.json").is_file():
        train(run, RECIPE, f"data={SET}", f"epochs={EPOCHS}", "summaries.histograms=false")
    for name, words in (("model", ()), ("model-int8", ("int8=true",))):
        if not (run / "export" / f"{name}.onnx").is_file():
            subprocess.run(boxcrew("export", f"run={run}", *words), check=True, stdout=sys.stderr)
    if not samples.is_dir():
        write_samples(run, samples)
    return Material(
        run=run,
        fp32=run / "export" / "model.onnx",
        int8=run / "export" / "model-int8.onnx",
        photos=_photos(cache, samples, MEGAPIXEL),
        small=_photos(cache, samples, SMALL),
    )


def _photos(cache: Path, samples: Path, size: tuple[int, int]) -> tuple[Path, ...]:
    """Return the photos of a folder in one size, with the noise of a sensor."""
    paths = []
    for number, sample in enumerate(sorted(samples.iterdir())):
        path = cache / f"{SET}-{size[0]}-{number}.jpg"
        if not path.is_file():
            noise = np.random.default_rng(number).normal(0, _NOISE, (size[1], size[0], 3))
            pixels = cv2.resize(cv2.imread(str(sample)), size, interpolation=cv2.INTER_CUBIC) + noise
            photo = np.clip(pixels, 0, 255).astype(np.uint8)
            cv2.imwrite(str(path), photo, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
        paths.append(path)
    return tuple(paths)
