"""Candidates are chosen with arrays as detectors choose them with tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from boxcrew.core.types import Floats, Ints
from boxcrew.detectors import DetectorNet, build_detector
from boxcrew.nets import static
from boxcrew.runtime.choice import choose_candidates, score_ranks
from boxcrew.runtime.model_info import CandidateRule
from boxcrew.testing.detectors import quick_config


@pytest.mark.parametrize("name", ["ssdlite", "picodet", "yolo", "yolo1"])
@pytest.mark.parametrize("count", [7, 10_000])
def test_the_choice_is_that_of_the_detector(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def ranks(scores: Floats) -> Ints:
        found: Ints = static.score_ranks(torch.from_numpy(scores)).numpy()
        return found

    monkeypatch.setattr("boxcrew.runtime.choice.score_ranks", ranks)
    monkeypatch.setattr(DetectorNet, "num_candidates", count)
    config = quick_config(name)
    detector = build_detector(config, ("cup", "book", "lamp")).eval()
    side = config.size.largest.square
    with torch.no_grad():
        images = torch.randint(0, 256, (1, 3, side, side), generator=torch.Generator().manual_seed(0))
        raw = detector(images.to(torch.uint8))
        wanted = [values[0].numpy() for values in detector.candidates(raw, (side, side))]
        scored = detector.scored_boxes(raw, (side, side))
    assert scored is not None
    rule = CandidateRule(count=count, each=detector.candidates_each, side=side)
    found = choose_candidates(scored.boxes[0].numpy(), scored.scores[0].numpy(), rule)
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(own, other)


def test_ranks_are_those_of_torch() -> None:
    scores = np.random.default_rng(0).uniform(-0.1, 1.1, 2000).clip(0, 1).astype(np.float32)
    wanted = static.score_ranks(torch.from_numpy(scores)).numpy()
    assert np.abs(score_ranks(scores) - wanted).max() <= 1  # on a step's edge, rounding decides
    assert (score_ranks(scores) == wanted).mean() > 0.99
