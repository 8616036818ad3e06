"""The models that are served: exported files by name, each replaced as a whole by a newer one."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from boxcrew.core.errors import ModelError, UsageError
from boxcrew.data.images.reading import encode_image
from boxcrew.runtime.exported import ExportedPredictor, open_exported
from boxcrew.runtime.model_file import ModelFile
from boxcrew.runtime.model_info import ImageInput, ModelInfo, Suppression
from boxcrew.serve.detecting import find
from boxcrew.serve.photo import Photo
from boxcrew.serve.refusals import RefusedError

_VERSION = 12  # letters of a file's digest that name its version
_LEAST_DIGEST = 8  # letters of a digest that a client has to give
_DEFAULT_THRESHOLD = 0.25
_MOST_SAMPLES = 12
_SMOOTHING = 0.05  # weight of the newest photo in the mean times


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A name, and the file that is served under it."""

    name: str
    path: Path
    threshold: float | None = None  # that suits people best, if an evaluation has found one


class Times:
    """The mean milliseconds of each stage of the latest photos."""

    def __init__(self) -> None:
        self._milliseconds: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, milliseconds: Mapping[str, float]) -> None:
        with self._lock:
            for name, value in milliseconds.items():
                old = self._milliseconds.get(name, value)
                self._milliseconds[name] = old + _SMOOTHING * (value - old)

    def milliseconds(self) -> dict[str, float]:
        with self._lock:
            return {name: round(value, 2) for name, value in self._milliseconds.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class ServedModel:
    """An exported detector that is ready to answer."""

    name: str
    version: str  # the beginning of the file's digest
    predictor: ExportedPredictor
    info: ModelInfo
    image: ImageInput
    rule: Suppression
    engine: str
    loaded: datetime
    threshold: float  # to begin with, where people choose
    samples: tuple[bytes, ...]  # photos to try it with, JPEG
    times: Times = field(default_factory=Times)

    @property
    def digest(self) -> str:
        """The digest of the weights."""
        return self.info.weights

    def is_version(self, digest: str) -> bool:
        """Return whether a digest, or its beginning, is that of the file or of the weights."""
        is_long = len(digest) >= _LEAST_DIGEST
        return is_long and (self.version.startswith(digest) or self.digest.startswith(digest))


def open_model(source: ModelSource, *, engine: str | None) -> ServedModel:
    """Open an exported detector and try it; `ModelError` if it does not answer."""
    exported = open_exported(source.path, engine=engine, threads=1)
    info = exported.info
    if info.predicts != "boxes" or info.image is None or info.suppression is None:
        raise ModelError(f"{source.path}: predicts {info.predicts}", advice="only detectors are served")
    version = _digest(exported.file)[:_VERSION]
    # The engine has the network: its file need not be in memory too.
    light = replace(exported, file=replace(exported.file, files={}))
    model = ServedModel(
        name=source.name,
        version=version,
        predictor=ExportedPredictor.of(light),
        info=info,
        image=info.image,
        rule=info.suppression,
        engine=exported.engine_name,
        loaded=datetime.now(UTC),
        threshold=_DEFAULT_THRESHOLD if source.threshold is None else source.threshold,
        samples=_read_samples(source.path),
    )
    _try(model)
    return model


def _digest(file: ModelFile) -> str:
    digest = hashlib.sha256()
    for name in sorted(file.files):
        digest.update(file.files[name])
    return digest.hexdigest()


def samples_folder(path: Path) -> Path:
    """Return where the photos are that a model can be tried with, beside its file."""
    return path.with_name(f"{path.stem}.samples")


def _read_samples(path: Path) -> tuple[bytes, ...]:
    files = sorted(samples_folder(path).glob("*.jpg"))[:_MOST_SAMPLES]
    return tuple(file.read_bytes() for file in files)


def _try(model: ServedModel) -> None:
    """Answer a few photos, so that the first client does not wait for what is made only once."""
    noise = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)
    photos = [Photo(name="sample", data=data) for data in (*model.samples[:1], encode_image(noise))]
    for photo in photos:
        finding = find(model.predictor, photo)
        values = np.concatenate([finding.detections.boxes.ravel(), finding.detections.scores])
        if not np.isfinite(values).all():
            raise ModelError(f"{model.name}: finds boxes that are not finite", advice="export it again")


class ModelStore:
    """The models by name. A model is replaced by one assignment: who has the old one keeps it until the
    answer.
    """

    def __init__(self, sources: Sequence[ModelSource], *, engine: str | None) -> None:
        self._sources = {source.name: source for source in sources}
        self._engine = engine
        self._models: dict[str, ServedModel] = {}
        self._locks = {name: threading.Lock() for name in self._sources}

    def open(self) -> None:
        """Open all; `ModelError` if one does not answer."""
        for name in self._sources:
            self.reload(name)

    def reload(self, name: str) -> ServedModel:
        """Open the file of a model anew, and serve it if it answers; else the old one stays."""
        with self._locks[name]:
            model = open_model(self._sources[name], engine=self._engine)
            self._models[name] = model
            return model

    def sources(self) -> Sequence[ModelSource]:
        return tuple(self._sources.values())

    def names(self) -> list[str]:
        return list(self._sources)

    def all(self) -> list[ServedModel]:
        return [self._models[name] for name in self._sources if name in self._models]

    def get(self, name: str | None) -> ServedModel:
        """Return the model called NAME or NAME@DIGEST; without a name, the only one."""
        if name is None:
            models = self.all()
            if len(models) != 1:
                raise RefusedError(
                    400,
                    "bad_request",
                    "model= is missing: there are several",
                    advice="GET /v1/models lists them",
                )
            return models[0]
        wanted, at, digest = name.partition("@")
        model = self._models.get(wanted)
        if model is None or (at and not model.is_version(digest)):
            message = "no such model" if model is None else f"{wanted} has no such version now"
            raise RefusedError(404, "not_found", message, advice="GET /v1/models lists those there are")
        return model


def name_sources(paths: Sequence[tuple[str, Path, float | None]]) -> list[ModelSource]:
    """Return sources with names of their own, made of those of runs or files."""
    sources: dict[str, ModelSource] = {}
    for wanted, path, threshold in paths:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", wanted).strip("-.") or "model"
        name, number = plain, 2
        while name in sources:
            name, number = f"{plain}-{number}", number + 1
        sources[name] = ModelSource(name=name, path=path, threshold=threshold)
    if not sources:
        raise UsageError("run=: no model to serve")
    return list(sources.values())
