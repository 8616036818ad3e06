"""How well text is foretold."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from boxcrew.core.errors import ModelError

_MOST_NATS = math.log(sys.float_info.max)  # beyond, the perplexity is too large to be written


@dataclass(frozen=True, kw_only=True)
class LanguageReport:
    """All that is measured about a language model on one split."""

    numbers: Mapping[str, float]
    """`loss` (nats a character), `perplexity` (its exponential), `bits` (a character). -1 where undefined."""
    num_characters: int  # that were foretold

    def to_json(self) -> dict[str, Any]:
        """What `json.dump` takes; all numbers are finite."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """From what `to_json` gave, before or after a way through a file."""
        return cls(numbers=dict(data["numbers"]), num_characters=data["num_characters"])


def evaluate_language(nats: float, num_characters: int) -> LanguageReport:
    """From the negative log-likelihood of all characters, summed."""
    if not math.isfinite(nats):
        raise ModelError(
            f"the loss of {num_characters} characters is {nats}, not a number",
            advice="training has diverged: a lower optim.rate=, or optim.clip=",
        )
    if not num_characters:
        return LanguageReport(numbers={"loss": -1.0, "perplexity": -1.0, "bits": -1.0}, num_characters=0)
    loss = nats / num_characters
    numbers = {"loss": loss, "perplexity": math.exp(min(loss, _MOST_NATS)), "bits": loss / math.log(2)}
    return LanguageReport(numbers=numbers, num_characters=num_characters)
