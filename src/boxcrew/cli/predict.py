"""The command `boxcrew predict`: what it does depends on the kind of network that was trained."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from pydantic import Field

from boxcrew.api import Classifier, Detector, Generator, TextModel
from boxcrew.api.detector import BATCH
from boxcrew.api.model import prediction_kind
from boxcrew.cli.output import Output, parse_settings, require, require_run
from boxcrew.cli.predict_files import output_folder, write_results
from boxcrew.cli.predict_sources import UNDERSTOOD, NamedImage, is_stream, open_images, open_stream
from boxcrew.core.config import Config, Tree
from boxcrew.core.errors import DataError, UsageError
from boxcrew.data.detection.writers import WRITERS
from boxcrew.data.folders import read_utf8
from boxcrew.data.images.video import FrameSource
from boxcrew.report.predictions import ClassResult, Result
from boxcrew.report.predictions_folder import ClassFile, PredictionFolder
from boxcrew.report.predictions_video import PredictionVideo
from boxcrew.train.run.loading import Which, description

_DETECTIONS = Path("detect") / "predict"


class PredictConfig(Config):
    run: Path
    weights: Which = "best"
    device: str = "auto"


class ClassifyConfig(PredictConfig):
    source: str  # images: see predict_sources; rows: a CSV file; texts: a file or a folder
    download: bool = False  # whether a source that is a URL may be read
    out: Path | None = None  # None: runs/…/predict[-2, …]


class DetectConfig(ClassifyConfig):
    score: float = Field(default=0.25, ge=0, le=1)  # detections with less are not shown
    format: str | None = None  # of a data set of the detections, for labeling tools
    engine: str | None = None  # that computes an exported file
    stride: int = Field(default=1, ge=1)  # of a video or camera, every so many frames
    frames: int | None = Field(default=None, ge=1)  # of a video or camera, at most so many


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
    require_run(tree, example="boxcrew predict run=DIR source=PHOTO")
    meta = description(tree["run"], which=str(tree.get("weights", "best")))
    _COMMANDS[prediction_kind(meta)](tree, out)


def _detect(tree: Tree, out: Output) -> None:
    require(tree, "source", example="boxcrew predict run=DIR source=PHOTO")
    config = DetectConfig.of(tree)
    if is_stream(config.source):
        _detect_frames(config, out)
        return
    for name in {"frames", "stride"} & config.model_fields_set:
        raise UsageError(f"{name}= is for videos and cameras, which source={config.source} is not")
    images = open_images(config.source, download=config.download)
    if config.format is not None:
        WRITERS.get(config.format)  # is there one?
    with output_folder(config.out, _DETECTIONS, out.info) as folder:
        detector = _load(config)
        results: Iterable[Result]
        if isinstance(images, NamedImage):
            results = [replace(detector.predict(images.image, score=config.score), name=images.name)]
        else:
            results = detector.predict_many(images, score=config.score, warn=out.warn)
        num = write_results(
            results,
            folder,
            lambda: PredictionFolder(folder, detector.classes, format=config.format),
            out,
            lambda result: out.info(f"{result.title}: {result.summary()}"),
            detector.engine,
        )
    _require_results(num, config.source, advice=UNDERSTOOD)


def _load(config: DetectConfig) -> Detector:
    return Detector.load(config.run, config.weights, config.device, config.engine)


def _detect_frames(config: DetectConfig, out: Output) -> None:
    source = open_stream(config.source, stride=config.stride)
    if config.format is not None:
        raise UsageError(f"format={config.format}: is for photos, not for videos and cameras")
    with output_folder(config.out, _DETECTIONS, out.info) as folder, out.progress(source.name) as progress:
        detector = _load(config)
        frames = islice(source.frames(out.warn), config.frames)
        batch = 1 if source.is_live else BATCH  # a frame of a camera should not wait for others
        num = write_results(
            detector.predict_frames(frames, score=config.score, batch=batch),
            folder,
            lambda: PredictionVideo(folder, stem=Path(source.name).stem, rate=source.rate),
            out,
            _show_changes(out) if source.is_live else _show_progress(source, config.frames, progress),
            detector.engine,
        )
    _require_results(num, config.source)


def _show_changes(out: Output) -> Callable[[Result], None]:
    """Return what prints a line for a frame if something else is found than in the frame before."""
    last = ""

    def show(result: Result) -> None:
        nonlocal last
        if result.summary() != last:
            last = result.summary()
            out.info(f"{result.title}: {last}")

    return show


def _show_progress(
    source: FrameSource, most: int | None, progress: Callable[[int, int], None]
) -> Callable[[Result], None]:
    """Return what counts frames on a bar."""
    done = itertools.count(1)
    total = min(source.num_frames, most or source.num_frames)
    return lambda _: progress(next(done), total)


def _classify(tree: Tree, out: Output) -> None:
    require(tree, "source", example="boxcrew predict run=DIR source=PICTURE")
    config = ClassifyConfig.of(tree)
    classifier = Classifier.load(config.run, config.weights, config.device)
    with output_folder(config.out, Path(classifier.loaded.config.folder) / "predict", out.info) as folder:
        num = write_results(
            _classified(classifier, config, out),
            folder,
            lambda: ClassFile(folder),
            out,
            lambda result: out.info(f"{result.source}: {result.name} {result.probability:.2f}"),
            classifier.engine,
        )
    _require_results(num, config.source)


def _classified(classifier: Classifier, config: ClassifyConfig, out: Output) -> Iterator[ClassResult]:
    source: str | list[Path] = config.source
    if classifier.takes_images:
        if is_stream(config.source):
            problem = f"source={config.source}: a video or camera, which only a detector takes"
            raise UsageError(problem, advice="give images to a classifier")
        images = open_images(config.source, download=config.download)
        if isinstance(images, NamedImage):
            yield replace(classifier.predict(images.image), source=images.name)
            return
        source = images
    yield from classifier.predict_many(source, warn=out.warn)


def _require_results(num: int, source: str, *, advice: str = "") -> None:
    if num == 0:
        raise DataError(f"source={source}: nothing in it could be read", advice=advice)


def _continue_text(tree: Tree, out: Output) -> None:
    config = ContinueTextConfig.of(tree)
    if config.text and config.source is not None:
        raise UsageError("text= and source=: only one of them can be given", advice="leave one out")
    model = TextModel.load(config.run, config.weights, config.device)
    text = config.text if config.source is None else read_utf8(config.source)
    options = config.model_dump(include={"num", "temperature", "seed"})
    more = model.predict(text, warn=out.warn, **options)
    out.note(model.engine.sentence())
    out.info(f"{text}{more}")
    out.result({"text": text, "continued": more, "engine": model.engine.tree()})


def _generate(tree: Tree, out: Output) -> None:
    config = GenerateConfig.of(tree)
    generator = Generator.load(config.run, config.weights, config.device)
    with output_folder(config.out, Path(generator.loaded.config.folder) / "predict", out.info) as folder:
        generator.predict(config.num, seed=config.seed).save(folder)
    out.note(generator.engine.sentence())
    out.info(f"results: {folder} (sheet.png, images/)")
    out.result({"out": str(folder), "num": config.num, "engine": generator.engine.tree()})


_COMMANDS = {"boxes": _detect, "classes": _classify, "text": _continue_text, "images": _generate}
