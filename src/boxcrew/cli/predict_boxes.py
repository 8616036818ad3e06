"""The command `boxcrew predict` with a detector: find objects in images."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pydantic import Field

from boxcrew.api import Detector, find_images
from boxcrew.cli.output import make_screen, print_json, require
from boxcrew.core.config import Config, Tree
from boxcrew.core.errors import DataError
from boxcrew.report.predictions import PredictionFolder
from boxcrew.train.run.directory import choose_folder
from boxcrew.train.run.loading import Which


class PredictBoxesConfig(Config):
    run: Path
    source: str  # an image, a folder, or a glob pattern
    out: Path | None = None  # None: runs/detect/predict[-2, …]
    score: float = Field(default=0.25, ge=0, le=1)  # detections with less are not shown
    weights: Which = "best"
    device: str = "auto"


def predict_boxes(tree: Tree, *, as_json: bool) -> None:
    require(tree, "source", example="boxcrew predict run=DIR source=PHOTO")
    config = PredictBoxesConfig.of(tree)
    screen = make_screen(as_json=as_json)
    images = find_images(config.source)
    detector = Detector.load(config.run, weights=config.weights, device=config.device)
    folder = PredictionFolder(choose_folder(config.out, Path("detect") / "predict"), detector.classes)
    results = []
    for image in images:
        try:
            result = detector.predict(image, score=config.score)
        except DataError as error:
            screen.warn(f"left out: {error.message}")
            continue
        folder.add(result)
        results.append(result.to_json())
        counts = ", ".join(f"{n} {name}" for name, n in Counter(result.names).most_common())
        screen.say(f"{image}: {counts or 'nothing found'}")
    folder.close()
    screen.say(f"results: {folder.folder} (images/, labels/, predictions.json, coco.json)")
    if as_json:
        print_json({"out": str(folder.folder), "results": results})
    if not results:
        raise DataError(f"source={config.source}: none of {len(images)} images could be read")
