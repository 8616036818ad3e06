"""`boxcrew predict` with a detector: what is where in photos."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pydantic import Field

from boxcrew.api import Detector, find_photos
from boxcrew.cli.output import print_json, require, screen
from boxcrew.core.config import Config, Tree
from boxcrew.core.errors import DataError
from boxcrew.report.predictions import PredictionFolder
from boxcrew.train.run.directory import choose_folder
from boxcrew.train.run.loading import Which


class PredictConfig(Config):
    """Its settings."""

    run: Path
    source: str  # a photo, a folder, or a glob pattern
    out: Path | None = None  # None: runs/detect/predict[-2, …]
    score: float = Field(default=0.25, ge=0, le=1)  # what is found with less is not shown
    weights: Which = "best"
    device: str = "auto"


def predict_photos(tree: Tree, *, as_json: bool) -> None:
    require(tree, "source", example="boxcrew predict run=DIR source=PHOTO")
    config = PredictConfig.of(tree)
    say = screen(as_json=as_json)
    photos = find_photos(config.source)
    detector = Detector.load(config.run, weights=config.weights, device=config.device)
    folder = PredictionFolder(config.out or choose_folder(None, Path("detect") / "predict"), detector.classes)
    results = []
    for photo in photos:
        try:
            result = detector.predict(photo, score=config.score)
        except DataError as error:
            say.warn(f"left out: {error.message}")
            continue
        folder.add(result)
        results.append(result.to_json())
        counts = ", ".join(f"{n} {name}" for name, n in Counter(result.names).most_common())
        say.say(f"{photo}: {counts or 'nothing found'}")
    folder.close()
    say.say(f"results: {folder.folder} (images/, labels/, predictions.json, coco.json)")
    if as_json:
        print_json({"out": str(folder.folder), "results": results})
    if not results:
        raise DataError(f"source={config.source}: none of {len(photos)} photos could be read")
