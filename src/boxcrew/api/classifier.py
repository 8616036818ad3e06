"""A trained classifier of images, rows of a table, or texts."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch

from boxcrew.api.images import ImageLike, Warn, as_many, each_of, find_images, load_image, read_ahead
from boxcrew.api.model import TorchModel
from boxcrew.data.examples.example_set import Array
from boxcrew.data.loading.collate import as_tensor
from boxcrew.report.predictions import ClassResult
from boxcrew.tasks.class_samples import NamedSample, encode_sample, read_samples

BATCH = 64
SampleLike = ImageLike | Mapping[str, Any]
"""An image, a row (values by column name) or a text, whichever the network was trained on."""


class Classifier(TorchModel):
    """A trained classifier.
    `Classifier.load("runs/classify/train").predict("cup.jpg").name`
    """

    predicts = "classes"
    default_recipe = "cnn"

    @overload  # a str, itself an iterable, is one sample
    def predict(self, sample: SampleLike) -> ClassResult: ...  # type: ignore[overload-overlap]
    @overload
    def predict(self, sample: Iterable[SampleLike]) -> list[ClassResult]: ...
    def predict(self, sample: object) -> ClassResult | list[ClassResult]:
        """Classify an image, row or text (see `SampleLike`), or each of a list or generator of them."""
        many = as_many(sample)
        if many is None:
            return self._classify([self._encode((None, sample))])[0]
        batches = read_ahead(((None, sample) for sample in many), self._encode, batch=BATCH)
        return [result for inputs in batches for result in self._classify(inputs)]

    __call__ = predict

    def predict_many(
        self, source: str | Path | Iterable[SampleLike], *, batch: int = BATCH, warn: Warn = warnings.warn
    ) -> Iterator[ClassResult]:
        """Yield the result of each image of a folder, glob pattern or .txt file of paths, row of a CSV file,
        text of a file or folder, or sample of a list or generator, in order.

        Samples that cannot be read are left out; `warn` is called for them and for doubtful values.
        """
        samples: Iterable[NamedSample]
        if not isinstance(source, str | Path):
            samples = ((None, sample) for sample in each_of(source))
        elif self.takes_images:
            samples = ((None, file) for file in find_images(source))
        else:
            samples = read_samples(Path(source), self.loaded.facts, warn)
        for inputs in read_ahead(samples, self._encode, batch=batch, warn=warn):
            yield from self._classify(inputs)

    @property
    def takes_images(self) -> bool:
        """True if the samples are images, not rows or texts."""
        return bool(self.loaded.facts.kind == "images")

    def _encode(self, named: NamedSample) -> tuple[str | None, Array]:
        name, sample = named
        if self.takes_images:
            path, sample = load_image(sample)
            name = None if path is None else str(path)
        return name, encode_sample(sample, self.loaded.facts)

    def _classify(self, inputs: Sequence[tuple[str | None, Array]]) -> list[ClassResult]:
        batch = as_tensor(np.stack([array for _, array in inputs]))
        with self.loaded.deployment, torch.inference_mode():
            scores = self.loaded.task.network(self.loaded.deployment.to_device(batch))
        probabilities = scores.float().softmax(dim=1).cpu().numpy()
        return [
            ClassResult(source=name, probabilities=row, classes=self.classes)
            for (name, _), row in zip(inputs, probabilities, strict=True)
        ]
