"""Made-up detectors' reports, and examined data sets, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from boxcrew.api import run_config
from boxcrew.core.config import parse_words
from boxcrew.core.types import Detections, Target
from boxcrew.evaluate.detection.metrics import evaluate_detections
from boxcrew.evaluate.detection.types import DetectionReport, EvaluatedImage
from boxcrew.report.doctor.report import Diagnosis, diagnose
from boxcrew.train.output.screen import Screen
from tests.helpers.tiny import TINY

MakeReport = Callable[[int], DetectionReport]
ReadPng = Callable[[Path], "np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]"]


def make_evaluated(num_classes: int) -> list[EvaluatedImage]:
    """The last of several classes has no objects."""
    random = np.random.default_rng(num_classes)
    evaluated = []
    for i in range(60):
        count = int(random.integers(1, 6))
        corner = random.random((count, 2)) * 300
        boxes = np.concatenate([corner, corner + 20 + random.random((count, 2)) * 100], axis=1)
        labels = random.integers(0, max(1, num_classes - 1), count)
        scores = np.sort(random.random(count).astype(np.float32))[::-1]
        detections = Detections.of(
            boxes=torch.tensor(boxes + random.normal(0, 8, boxes.shape), dtype=torch.float32),
            scores=torch.tensor(scores.copy()),
            labels=torch.tensor(labels),
        )
        evaluated.append(
            EvaluatedImage(
                key=str(i), width=420, height=420, target=Target.of(boxes, labels), detections=detections
            )
        )
    return evaluated


@pytest.fixture(scope="session")
def report_of() -> MakeReport:
    """A report with so many classes; their names are long for a plot, and one is not ASCII."""

    def make(num_classes: int) -> DetectionReport:
        names = [f"product number {i} of the long shelf" for i in range(num_classes)]
        return evaluate_detections(make_evaluated(num_classes), ["café 手机", *names[1:]])

    return make


@pytest.fixture(scope="session")
def nothing_found() -> DetectionReport:
    return evaluate_detections([], ["phone", "watch"])


@pytest.fixture(scope="session")
def read_png() -> ReadPng:
    """Pixels of a file that must be a PNG and not blank."""

    def read(path: Path) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
        assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        pixels: np.ndarray[tuple[int, int, int], np.dtype[np.uint8]] | None = cv2.imread(str(path))
        assert pixels is not None
        assert len(np.unique(pixels)) > 10
        return pixels

    return read


class Page(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, tag: str, attribute: str) -> list[str | None]:
        return [attributes.get(attribute) for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="session")
def read_page() -> Callable[[str], Page]:
    """A page of HTML with its `tags`, its `text` and the `values` of an attribute."""
    return Page


@pytest.fixture(scope="session")
def examined() -> Callable[[Path], Diagnosis]:
    """Examines a set, held against a small detector."""

    def look(data: Path) -> Diagnosis:
        return diagnose(run_config(None, parse_words([f"data={data}", *TINY])[1]), Screen())

    return look


@pytest.fixture(scope="session")
def small(tiny_set: Path, examined: Callable[[Path], Diagnosis]) -> Diagnosis:
    """Of the small set."""
    return examined(tiny_set)
