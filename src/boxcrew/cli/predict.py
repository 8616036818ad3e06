"""The command `boxcrew predict`: what it does depends on the kind of network that was trained."""

from __future__ import annotations

from pathlib import Path

from boxcrew.cli.output import parse_settings, require
from boxcrew.cli.predict_boxes import predict_boxes
from boxcrew.cli.predict_classes import predict_classes
from boxcrew.cli.predict_images import predict_images
from boxcrew.cli.predict_text import predict_text
from boxcrew.tasks.base import TASKS
from boxcrew.train.run.loading import read_task_weights

_COMMANDS = {
    "boxes": predict_boxes,
    "classes": predict_classes,
    "text": predict_text,
    "images": predict_images,
}


def predict_command(words: list[str], *, as_json: bool) -> None:
    _, tree = parse_settings(words, verbatim={"text"})  # a text may begin with a bracket
    require(tree, "run", example="boxcrew predict run=DIR source=PHOTO")
    meta = read_task_weights(Path(str(tree["run"])), which=str(tree.get("weights", "best")))[1]
    kind = TASKS.get(meta["task"]["name"])
    _COMMANDS[kind.predicts(kind.facts_class.from_json(meta["facts"]))](tree, as_json=as_json)
