"""The command `boxcrew predict`: what it does depends on the kind of network that was trained."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pydantic import Field

from boxcrew.api import Classifier, Detector, Generator, TextModel
from boxcrew.api.images import find_images
from boxcrew.api.model import prediction_kind
from boxcrew.cli.output import Output, parse_settings, require
from boxcrew.core.config import Config, Tree
from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.files import write_json
from boxcrew.data.folders import read_utf8
from boxcrew.report.predictions import PredictionFolder
from boxcrew.train.run.directory import choose_folder
from boxcrew.train.run.loading import Which, read_task_weights


class PredictConfig(Config):
    run: Path
    weights: Which = "best"
    device: str = "auto"


class ClassifyConfig(PredictConfig):
    source: str  # images: a file, a folder or a glob pattern; rows: a CSV file; texts: a file or a folder
    out: Path | None = None  # None: runs/…/predict[-2, …]


class DetectConfig(ClassifyConfig):
    score: float = Field(default=0.25, ge=0, le=1)  # detections with less are not shown


class GenerateConfig(PredictConfig):
    num: int = Field(default=64, ge=1)  # of images
    seed: int = Field(default=0, ge=0)
    out: Path | None = None


class ContinueTextConfig(PredictConfig):
    text: str = ""  # to be continued
    source: Path | None = None  # a file with the text
    num: int = Field(default=400, ge=1)  # of characters
    temperature: float = Field(default=0.8, ge=0)  # lower: more probable and less varied
    seed: int = Field(default=0, ge=0)


def predict_command(words: list[str], out: Output) -> None:
    _, tree = parse_settings(words, verbatim={"text"})  # a text may begin with a bracket
    require(tree, "run", example="boxcrew predict run=DIR source=PHOTO")
    meta = read_task_weights(Path(str(tree["run"])), which=str(tree.get("weights", "best")))[1]
    _COMMANDS[prediction_kind(meta)](tree, out)


def _detect(tree: Tree, out: Output) -> None:
    require(tree, "source", example="boxcrew predict run=DIR source=PHOTO")
    config = DetectConfig.of(tree)
    images = find_images(config.source)
    detector = Detector.load(config.run, config.weights, config.device)
    folder = PredictionFolder(choose_folder(config.out, Path("detect") / "predict"), detector.classes)
    results = []
    for result in detector.predict_many(images, score=config.score, warn=out.warn):
        folder.add(result)
        results.append(result.to_json())
        counts = ", ".join(f"{n} {name}" for name, n in Counter(result.names).most_common())
        out.info(f"{result.path}: {counts or 'nothing found'}")
    folder.close()
    out.info(f"results: {folder.folder} (images/, labels/, predictions.json, coco.json)")
    out.result({"out": str(folder.folder), "results": results})
    if not results:
        raise DataError(f"source={config.source}: none of {len(images)} images could be read")


def _classify(tree: Tree, out: Output) -> None:
    require(tree, "source", example="boxcrew predict run=DIR source=PICTURE")
    config = ClassifyConfig.of(tree)
    classifier = Classifier.load(config.run, config.weights, config.device)
    folder = choose_folder(config.out, Path(classifier.loaded.config.folder) / "predict")
    results = []
    for result in classifier.predict_many(config.source, warn=out.warn):
        results.append(result.to_json())
        out.info(f"{result.source}: {result.name} {result.probability:.2f}")
    if not results:
        raise DataError(f"source={config.source}: nothing could be read")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "predictions.json", results)
    out.info(f"results: {folder / 'predictions.json'}")
    out.result({"out": str(folder), "results": results})


def _continue_text(tree: Tree, out: Output) -> None:
    config = ContinueTextConfig.of(tree)
    if config.text and config.source is not None:
        raise UsageError("text= and source=: only one of them can be given", advice="leave one out")
    model = TextModel.load(config.run, config.weights, config.device)
    text = config.text if config.source is None else read_utf8(config.source)
    options = config.model_dump(include={"num", "temperature", "seed"})
    more = model.predict(text, warn=out.warn, **options)
    out.info(f"{text}{more}")
    out.result({"text": text, "continued": more})


def _generate(tree: Tree, out: Output) -> None:
    config = GenerateConfig.of(tree)
    generator = Generator.load(config.run, config.weights, config.device)
    images = generator.predict(config.num, seed=config.seed)
    folder = images.save(choose_folder(config.out, Path(generator.loaded.config.folder) / "predict"))
    out.info(f"results: {folder} (sheet.png, images/)")
    out.result({"out": str(folder), "num": config.num})


_COMMANDS = {"boxes": _detect, "classes": _classify, "text": _continue_text, "images": _generate}
