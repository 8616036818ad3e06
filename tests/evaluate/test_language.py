"""The numbers of a language model."""

from __future__ import annotations

import json
import math

import pytest

from boxcrew.core.errors import ModelError
from boxcrew.evaluate.language import evaluate_language


def test_guessing_among_eight_characters_takes_three_bits() -> None:
    report = evaluate_language(50 * math.log(8), 50)
    assert dict(report.numbers) == pytest.approx({"val_loss": math.log(8), "perplexity": 8, "bits": 3})
    assert report.num_characters == 50


def test_nothing_to_foretell() -> None:
    assert set(evaluate_language(0.0, 0).numbers.values()) == {-1}


def test_a_perplexity_beyond_all_numbers_is_finite() -> None:
    numbers = evaluate_language(5000.0, 1).numbers
    assert math.isfinite(numbers["perplexity"])
    assert numbers["perplexity"] > 1e300
    assert numbers["val_loss"] == 5000


@pytest.mark.parametrize("nats", [math.nan, math.inf])
def test_a_loss_that_is_not_a_number(nats: float) -> None:
    with pytest.raises(ModelError, match="12 characters"):
        evaluate_language(nats, 12)


def test_the_report_can_be_written() -> None:
    report = evaluate_language(170.0, 100)
    written = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert written == {"numbers": report.numbers, "classes": [], "num_characters": 100}
