"""`boxcrew predict`: what it does depends on what was trained."""

from __future__ import annotations

from pathlib import Path

from boxcrew.cli.output import require, settings
from boxcrew.cli.predict_classes import predict_classes
from boxcrew.cli.predict_photos import predict_photos
from boxcrew.cli.predict_pictures import predict_pictures
from boxcrew.cli.predict_text import predict_text
from boxcrew.train.run.loading import read_task_weights

_BY_TASK = {
    "detection": predict_photos,
    "classification": predict_classes,
    "language": predict_text,
    "gan": predict_pictures,
}


def predict_command(words: list[str], *, as_json: bool) -> None:
    _, tree = settings(words, verbatim={"text"})  # which may begin with a bracket
    require(tree, "run", example="boxcrew predict run=DIR source=PHOTO")
    meta = read_task_weights(Path(str(tree["run"])), which=str(tree.get("weights", "best")))[1]
    task, classes = meta["task"]["name"], meta["facts"]["classes"]
    if task == "sequence":
        task = "classification" if classes else "language"
    _BY_TASK[task](tree, as_json=as_json)
