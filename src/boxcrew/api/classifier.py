"""A trained classifier of images, rows of a table, or texts."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import overload

import numpy as np
import torch

from boxcrew.api.images import Warn, as_many, read_ahead
from boxcrew.api.model import Model
from boxcrew.api.samples import NamedSample, SampleLike, encode_sample, samples_in
from boxcrew.data.examples.example_set import Array
from boxcrew.data.loading.collate import as_tensor
from boxcrew.report.predictions import ClassResult
from boxcrew.tasks.classification import ClassesConfig
from boxcrew.train.run.loading import Loaded, Which

BATCH = 64


class Classifier(Model):
    """A trained classifier.
    `Classifier.load("runs/classify/train").predict("cup.jpg").name`
    """

    kind = "classification"
    default_recipe = "cnn"

    def __init__(self, loaded: Loaded, path: Path, which: Which, device: str) -> None:
        super().__init__(loaded, path, which, device)
        self.classes: tuple[str, ...] = tuple(loaded.facts["classes"])

    @overload  # a str, itself an iterable, is one sample
    def predict(self, sample: SampleLike) -> ClassResult: ...  # type: ignore[overload-overlap]
    @overload
    def predict(self, sample: Iterable[SampleLike]) -> list[ClassResult]: ...
    def predict(self, sample: SampleLike | Iterable[SampleLike]) -> ClassResult | list[ClassResult]:
        """Classify a sample, or each of a list or generator of samples.

        A sample is an image (a file, a Pillow image, an RGB array), a row (a mapping of column names to
        values), or a text itself, whichever the network was trained on.
        """
        many = as_many(sample)
        if many is None:
            return self._classify([self._encode(self._named(sample))])[0]
        batches = read_ahead(map(self._named, many), self._encode, batch=BATCH)
        return [result for inputs in batches for result in self._classify(inputs)]

    __call__ = predict

    def predict_many(
        self, source: str | Path | Iterable[SampleLike], *, batch: int = BATCH, warn: Warn = warnings.warn
    ) -> Iterator[ClassResult]:
        """Yield the result of each image of a folder or glob pattern, row of a CSV file, text of a file or
        folder, or sample of a list or generator, in order.

        Samples that cannot be read are left out; `warn` is called for them and for doubtful values.
        """
        samples = (
            samples_in(source, self._loaded.facts, warn)
            if isinstance(source, str | Path)
            else map(self._named, source)
        )
        for inputs in read_ahead(samples, self._encode, batch=batch, warn=warn):
            yield from self._classify(inputs)

    def _named(self, sample: object) -> NamedSample:
        """Return a sample with its file, if it has one."""
        is_file = self._loaded.facts["kind"] == "pictures" and isinstance(sample, str | Path)
        return str(sample) if is_file else None, sample

    def _encode(self, named: NamedSample) -> tuple[str | None, Array]:
        return named[0], encode_sample(named[1], self._loaded.facts)

    def _classify(self, inputs: Sequence[tuple[str | None, Array]]) -> list[ClassResult]:
        batch = as_tensor(np.stack([array for _, array in inputs]))
        with self._loaded.deployment, torch.inference_mode():
            scores = self._loaded.task.network(self._loaded.deployment.to_device(batch))
        probabilities = scores.float().softmax(dim=1).cpu().numpy()
        return [
            ClassResult(source=name, probabilities=row, classes=self.classes)
            for (name, _), row in zip(inputs, probabilities, strict=True)
        ]

    def _summary(self) -> str:
        assert isinstance(self._loaded.config, ClassesConfig)
        return f"{self._loaded.config.net.name}, {len(self.classes)} classes"
