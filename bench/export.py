"""Exported files against the network of torch, and against what others export or run.

`python -m bench.export SIDE FILE PHOTO` is one measurement in its own process; in `rows` they take turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from bench.child import boxcrew, in_child, one_core, train
from bench.real_data import real_data
from bench.row import Row, alternate_figures, skipped
from bench.timing import time_calls

SET = "groceries8_voc"
MINUTES = 3
COMMAND = "python -m bench export"
PREDICTIONS = 20
LARGE, USUAL = (4000, 3000), (640, 480)  # photos of 12 megapixels, and of a camera
PEER = Path(".peers/ultralytics/bin/python")


def rows(*, repeats: int = 3) -> list[Row]:
    data = real_data(SET)
    if data is None:
        return [skipped(what="exported `starter`", reason=f"no {SET}", command=COMMAND)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = folder / "run"
        train(run, "starter", f"data={data}", f"time={MINUTES}m", "summaries.histograms=false")
        reports = {precision: _export(run, precision) for precision in ("fp32", "int8")}
        photos = {size: _photo(folder, data, size) for size in (LARGE, USUAL)}
        with one_core():
            return [*_against_torch(reports), *_from_files(reports, photos, run, repeats)]


def _export(run: Path, precision: str) -> dict[str, Any]:
    start = time.monotonic()
    words = ("export", f"run={run}", *(["int8=true", "force=true"] if precision == "int8" else []))
    subprocess.run(boxcrew(*words), check=True, stdout=sys.stderr)
    name = "model" if precision == "fp32" else "model-int8"
    report: dict[str, Any] = json.loads((run / "export" / f"{name}.report.json").read_text())
    return {**report, "seconds": time.monotonic() - start}


def _against_torch(reports: dict[str, dict[str, Any]]) -> list[Row]:
    fp32, int8 = reports["fp32"], reports["int8"]
    proof = fp32["proof"]
    ratios = {
        name: report["costs"]["torch"]["cpu_ms"] / report["costs"]["onnxruntime"]["cpu_ms"]
        for name, report in reports.items()
    }
    lost = int8["torch"]["AP"] - int8["exported"]["AP"]
    detail = (
        f"the network alone, one photo on one thread, medians of rounds that take turns; `starter` after "
        f"{MINUTES} minutes on `{SET}`"
    )

    def costs(name: str) -> tuple[str, str]:
        both = reports[name]["costs"]
        return tuple(f"{both[side]['cpu_ms']:.1f} ms of CPU" for side in ("onnxruntime", "torch"))  # type: ignore[return-value]

    return [
        Row(
            what=f"photos of `{SET}` val on which the exported `starter` finds what torch finds",
            ours=f"{proof['num_same']} of {proof['num_samples']}",
            theirs="aim: all",
            verdict="met" if proof["num_same"] == proof["num_samples"] else "missed",
            command=COMMAND,
            detail=f"boxes at most {proof['worst_pixels']:.2g} px apart, scores {proof['worst_score']:.2g}; "
            f"exported and proved in {fp32['seconds']:.0f} s",
        ),
        Row(
            what="exported `starter` in ONNX Runtime, against torch",
            ours=costs("fp32")[0],
            theirs=costs("fp32")[1],
            verdict=f"{ratios['fp32']:.2f} x (aim: 2 x)",
            command=COMMAND,
            detail=detail,
        ),
        Row(
            what="exported `starter` with int8 in ONNX Runtime, against torch",
            ours=f"{costs('int8')[0]}, AP {int8['exported']['AP']:.4f}",
            theirs=f"{costs('int8')[1]}, AP {int8['torch']['AP']:.4f}",
            verdict=f"{ratios['int8']:.2f} x (aim: 4 x), AP lost {lost:.4f} (aim: at most 0.002)",
            command=COMMAND,
            detail=f"{detail}; made, evaluated and measured in {int8['seconds']:.0f} s (aim: made in 60 s)",
        ),
    ]


def _from_files(
    reports: dict[str, dict[str, Any]], photos: dict[tuple[int, int], Path], run: Path, repeats: int
) -> list[Row]:
    """Return the rows about whole predictions, from a JPEG file to boxes."""
    files = {name: reports[name]["file"] for name in reports}
    large, usual = str(photos[LARGE]), str(photos[USUAL])
    sides: dict[str, Callable[[], dict[str, float]]] = {
        "large fp32": partial(in_child, "export", "exported", files["fp32"], large),
        "large int8": partial(in_child, "export", "exported", files["int8"], large),
        "large torch": partial(in_child, "export", "run", str(run), large),
        "fp32": partial(in_child, "export", "exported", files["fp32"], usual),
        "int8": partial(in_child, "export", "exported", files["int8"], usual),
        "torchvision": partial(in_child, "export", "torchvision", "-", usual),
    }
    if PEER.is_file():
        sides["ultralytics"] = partial(_in_peer, usual, str(run.parent))
    measured = dict(zip(sides, alternate_figures(list(sides.values()), repeats=repeats), strict=True))
    cpu = {name: 1000 * figures["cpu_seconds"] for name, figures in measured.items()}
    wall = {name: 1000 * figures["seconds"] for name, figures in measured.items()}
    detail = (
        f"medians of {PREDICTIONS} predictions and of {repeats} processes, taking turns, held to one core"
    )
    result = [
        Row(
            what="a JPEG file of 12 megapixels to boxes, exported `starter`",
            ours=f"{cpu['large fp32']:.1f} ms of CPU, int8 {cpu['large int8']:.1f}",
            theirs=f"torch {cpu['large torch']:.1f}; aim: 35 ms",
            verdict="met" if cpu["large fp32"] <= 35 else "missed",
            command=COMMAND,
            detail=f"{detail}; {wall['large fp32']:.1f} ms on the clock, int8 {wall['large int8']:.1f}",
        ),
        Row(
            what="a JPEG file of 640 x 480 to boxes, exported `starter`, against torchvision's SSDLite",
            ours=f"{cpu['fp32']:.1f} ms of CPU, int8 {cpu['int8']:.1f}",
            theirs=f"{cpu['torchvision']:.1f} ms of CPU",
            verdict=f"{cpu['torchvision'] / cpu['fp32']:.2f} x, int8 "
            f"{cpu['torchvision'] / cpu['int8']:.2f} x (aim: 4 x)",
            command=COMMAND,
            detail=detail,
        ),
    ]
    what = (
        "a JPEG file of 640 x 480 to boxes, exported `starter`, against Ultralytics YOLO11n in ONNX Runtime"
    )
    if "ultralytics" not in cpu:
        return [*result, skipped(what=what, reason="run `make peers`", command=COMMAND)]
    peer = Row(
        what=what,
        ours=f"{cpu['fp32']:.1f} ms of CPU, int8 {cpu['int8']:.1f}",
        theirs=f"{cpu['ultralytics']:.1f} ms of CPU",
        verdict=f"{cpu['ultralytics'] / cpu['fp32']:.2f} x, int8 "
        f"{cpu['ultralytics'] / cpu['int8']:.2f} x (aim: 1.3 x)",
        command=COMMAND,
        detail=f"{detail}; both at 256 px; YOLO11n has random weights, and finds nothing to suppress",
    )
    return [*result, peer]


def _in_peer(photo: str, folder: str) -> dict[str, float]:
    command = [str(PEER), "-m", "bench.peers.ultralytics_predict", photo, folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _photo(folder: Path, data: Path, size: tuple[int, int]) -> Path:
    """Write a JPEG of some photos of the set, side by side, with the noise of a sensor."""
    files = sorted((data / "JPEGImages").iterdir())[:12]
    images = [cv2.resize(cv2.imread(str(file)), (size[0] // 4, size[1] // 3)) for file in files]
    rows = [np.hstack(images[start : start + 4]) for start in range(0, 12, 4)]
    noise = np.random.default_rng(0).normal(0, 3, (size[1], size[0], 3))
    photo = np.clip(cv2.resize(np.vstack(rows), size) + noise, 0, 255).astype(np.uint8)
    path = folder / f"{size[0]}.jpg"
    cv2.imwrite(str(path), photo, [cv2.IMWRITE_JPEG_QUALITY, 90])
    return path


def measure_ours(file: str, photo: str) -> dict[str, float]:
    """Time `Detector.predict` as a user calls it."""
    from boxcrew import Detector

    detector = Detector.load(file, device="cpu")
    return time_calls(lambda: detector.predict(photo), num=PREDICTIONS)


def measure_torchvision(photo: str) -> dict[str, float]:
    import torch
    from torchvision.io import decode_jpeg, read_file
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    torch.set_num_threads(1)
    model = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=9).eval()

    def predict() -> object:
        with torch.inference_mode():
            return model([decode_jpeg(read_file(photo)).float() / 255])

    return time_calls(predict, num=PREDICTIONS)


if __name__ == "__main__":
    side, path, image = sys.argv[1:]
    print(json.dumps(measure_torchvision(image) if side == "torchvision" else measure_ours(path, image)))
