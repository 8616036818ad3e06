"""What keeps a bad step from spoiling a run: it is left out, and after several in a row the run goes back."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import Field

from boxcrew.core.config import Config
from boxcrew.core.errors import BoxcrewError
from boxcrew.core.types import Batch
from boxcrew.train.checkpoint import Checkpoint

MAX_ROLLBACKS = 3
SLOWER = 0.5  # what each rollback multiplies the rate by


class GuardConfig(Config):
    group = "guard"

    failures: int = Field(default=5, ge=1)  # bad steps in a row before the run goes back to a checkpoint
    spike: float | None = Field(default=20.0, gt=1)  # a loss this many times the usual is bad; none: no limit
    window: int = Field(default=50, ge=2)  # steps whose median loss is the usual


@dataclass(frozen=True, kw_only=True)
class _State:
    failures: int = 0  # in a row, up to now
    skipped_steps: int = 0  # in the whole run, also in parts that it went back behind
    rollbacks: int = 0
    losses: tuple[float, ...] = ()  # of the last good steps


class Guard:
    """Judges each step. `last_good` finds the checkpoint to go back to."""

    def __init__(
        self,
        config: GuardConfig,
        *,
        warn: Callable[[str], None],
        last_good: Callable[[], Checkpoint | None],
    ) -> None:
        self.warn = warn
        self._config = config
        self._last_good = last_good
        self._state = _State()

    @property
    def failures(self) -> int:
        """Steps in a row that were left out, up to now."""
        return self._state.failures

    @property
    def skipped_steps(self) -> int:
        return self._state.skipped_steps

    @property
    def rollbacks(self) -> int:
        return self._state.rollbacks

    @property
    def rate_factor(self) -> float:
        return math.pow(SLOWER, self._state.rollbacks)

    @property
    def has_enough(self) -> bool:
        """Whether so many steps failed in a row that the run is to go back."""
        return self._state.failures >= self._config.failures

    def fault_of_loss(self, loss: float) -> str | None:
        """What is wrong with it, in words."""
        if not math.isfinite(loss):
            return f"the loss is {loss}"
        losses, spike = self._state.losses, self._config.spike
        if spike is None or len(losses) < self._config.window:
            return None
        usual = statistics.median(losses)
        if usual > 0 and loss > spike * usual:
            return f"the loss is {loss:.4g}, {loss / usual:.0f} times the usual {usual:.4g} (guard.spike)"
        return None

    def fault_of_norm(self, norm: float) -> str | None:
        return None if math.isfinite(norm) else f"the gradient's norm is {norm}"

    def passed(self, loss: float) -> None:
        losses = (*self._state.losses, loss)[-self._config.window :]
        self._state = replace(self._state, failures=0, losses=losses)

    def failed(self, step: int, fault: str, batch: Batch) -> None:
        """Counts step number `step`, and names its images."""
        state = self._state
        self._state = replace(state, failures=state.failures + 1, skipped_steps=state.skipped_steps + 1)
        self.warn(f"step {step} is left out: {fault}; images: {', '.join(batch.keys)}")

    def way_back(self, step: int) -> Checkpoint:
        """The checkpoint that the run goes back to from `step`; `BoxcrewError` where it has to stop."""
        state = self._state
        trouble = f"step {step}: {state.failures} steps in a row failed"
        advice = (
            "look at the images that train.log names; then a new run with a lower optim.rate or optim.clip=10"
        )
        if state.rollbacks >= MAX_ROLLBACKS:
            raise BoxcrewError(f"{trouble}, after going back {state.rollbacks} times", advice=advice)
        found = self._last_good()
        if found is None:
            raise BoxcrewError(f"{trouble}, and there is no checkpoint to go back to", advice=advice)
        return found

    def went_back(self, before: Mapping[str, Any]) -> None:
        """After the state of the checkpoint was loaded. `before` is the state that the run gave up: what was
        counted in it stays counted.
        """
        gone = _State(**before)
        rollbacks = gone.rollbacks + 1
        self._state = replace(self._state, failures=0, skipped_steps=gone.skipped_steps, rollbacks=rollbacks)

    def state(self) -> dict[str, Any]:
        return asdict(self._state)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """No state at all is that of a run that had no guard."""
        self._state = _State(**{**state, "losses": tuple(state.get("losses", ()))})
