"""Evaluates language models: how well they predict the next character of a text."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from boxcrew.evaluate.evaluation import EvaluationReport, diverged

_MOST_NATS = math.log(sys.float_info.max)  # beyond, the perplexity overflows a float


@dataclass(frozen=True, kw_only=True)
class LanguageReport(EvaluationReport):
    """All that is measured about a language model on one split."""

    numbers: Mapping[str, float]
    """`val_loss` (nats per character), `perplexity` (its exponential), `bits` (per character)."""
    num_characters: int  # that were predicted


def evaluate_language(nats: float, num_characters: int) -> LanguageReport:
    """Return the report for `nats`, the sum of the negative log-likelihoods of all characters."""
    if not math.isfinite(nats):
        raise diverged(f"the loss of {num_characters} characters is {nats}")
    numbers = {"val_loss": -1.0, "perplexity": -1.0, "bits": -1.0}
    if num_characters:
        loss = nats / num_characters
        numbers = {
            "val_loss": loss,
            "perplexity": math.exp(min(loss, _MOST_NATS)),
            "bits": loss / math.log(2),
        }
    return LanguageReport(numbers=numbers, classes=(), num_characters=num_characters)
