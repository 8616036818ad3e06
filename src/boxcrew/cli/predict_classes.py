"""The command `boxcrew predict` with a classifier: the class of each image, row or text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from boxcrew.api import find_images
from boxcrew.cli.output import make_screen, print_json, require
from boxcrew.core.config import Config, Tree
from boxcrew.core.errors import DataError
from boxcrew.core.files import write_json
from boxcrew.data.examples.alphabet import Unit, encode_text
from boxcrew.data.examples.columns import encode_rows, require_columns, value_problems
from boxcrew.data.examples.crops import resize_to
from boxcrew.data.examples.example_set import Array
from boxcrew.data.examples.formats.text import TEXT_SUFFIXES, split_texts, truncated_texts
from boxcrew.data.examples.table import read_table
from boxcrew.data.folders import files_below, read_utf8
from boxcrew.data.images.reading import read_image
from boxcrew.data.loading.collate import as_tensor
from boxcrew.tasks.data import DataFacts
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.directory import choose_folder
from boxcrew.train.run.loading import Loaded, Which, load_task

BATCH = 64
SHOWN = 5  # the most probable classes of a sample


class PredictClassesConfig(Config):
    run: Path
    source: str  # images: a file, a folder or a glob pattern; rows: a CSV file; texts: a file or a folder
    out: Path | None = None
    weights: Which = "best"
    device: str = "auto"


def predict_classes(tree: Tree, *, as_json: bool) -> None:
    require(tree, "source", example="boxcrew predict run=DIR source=PICTURE")
    config = PredictClassesConfig.of(tree)
    screen = make_screen(as_json=as_json)
    loaded = load_task(config.run, which=config.weights, device=config.device, batch=BATCH)
    folder = choose_folder(config.out, Path(loaded.config.folder) / "predict")
    results = []
    for keys, inputs in _batches(_inputs(config.source, loaded.facts, screen)):
        for key, probabilities in zip(keys, _probabilities(loaded, inputs), strict=True):
            results.append(_result(key, probabilities, loaded.facts["classes"]))
            best = results[-1]["classes"][0]
            screen.say(f"{key}: {best['name']} {best['probability']:.2f}")
    if not results:
        raise DataError(f"source={config.source}: nothing could be read")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "predictions.json", results)
    screen.say(f"results: {folder / 'predictions.json'}")
    if as_json:
        print_json({"out": str(folder), "results": results})


def _inputs(source: str, facts: DataFacts, screen: Screen) -> Iterator[tuple[str, Array]]:
    if facts["kind"] == "pictures":
        yield from _images(source, facts, screen)
    elif facts["kind"] == "numbers":
        yield from _rows(Path(source), facts, screen)
    else:
        yield from _texts(Path(source), facts, screen)


def _images(source: str, facts: DataFacts, screen: Screen) -> Iterator[tuple[str, Array]]:
    height, width, channels = facts["shape"]
    for image in find_images(source):
        try:
            yield str(image), resize_to(read_image(image), (height, width, channels))
        except DataError as error:
            screen.warn(f"left out: {error.message}")


def _rows(file: Path, facts: DataFacts, screen: Screen) -> Iterator[tuple[str, Array]]:
    table, problems = read_table(file)
    columns = facts["meaning"]["columns"]
    require_columns(table, columns)
    for problem in (*problems, *value_problems(table, columns)):
        screen.warn(str(problem))
    for number, row in table.named_rows():
        yield f"{file}:{number}", encode_rows(facts["meaning"], [row])[0]


def _texts(path: Path, facts: DataFacts, screen: Screen) -> Iterator[tuple[str, Array]]:
    """Yield the texts of a file or folder: lines or complete files, as in training."""
    meaning = facts["meaning"]
    unit: Unit = meaning.get("unit", "line")
    for file in files_below(path, TEXT_SUFFIXES) if path.is_dir() else [path]:
        try:
            content = read_utf8(file)
        except DataError as error:
            if file == path:
                raise
            screen.warn(f"left out: {error.message}")
            continue
        texts = [
            (f"{file}:{number}" if unit == "line" else str(file), text)
            for number, text in split_texts(content, unit)
        ]
        for problem in truncated_texts(str(file), texts, meaning["length"]):
            screen.warn(str(problem))
        for key, text in texts:
            yield key, encode_text(meaning, text)


def _batches(inputs: Iterator[tuple[str, Array]]) -> Iterator[tuple[list[str], Array]]:
    while batch := list(islice(inputs, BATCH)):
        keys, arrays = zip(*batch, strict=True)
        yield list(keys), np.stack(arrays)


def _probabilities(loaded: Loaded, inputs: Array) -> list[list[float]]:
    with loaded.deployment, torch.inference_mode():
        scores = loaded.task.network(loaded.deployment.to_device(as_tensor(inputs)))
    probabilities: list[list[float]] = scores.float().softmax(dim=1).cpu().tolist()
    return probabilities


def _result(key: str, probabilities: list[float], classes: list[str]) -> dict[str, Any]:
    order = sorted(range(len(classes)), key=lambda label: -probabilities[label])[:SHOWN]
    return {
        "source": key,
        "classes": [{"name": classes[label], "probability": probabilities[label]} for label in order],
    }
