"""What keeps a bad step from spoiling a run: it is left out, and after several in a row the run goes back."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import Field

from boxcrew.core.config import Config
from boxcrew.core.errors import BoxcrewError
from boxcrew.core.types import Batch
from boxcrew.train.loop.checkpoint import Checkpoint

MAX_ROLLBACKS = 3
SLOWER = 0.5  # what each rollback multiplies the rate by
MAX_OVERFLOWS = 20  # in a row that are usual with a gradient scaler, which halves its scale after each


class GuardConfig(Config):
    group = "guard"

    failures: int = Field(default=5, ge=1)  # bad steps in a row before the run goes back to a checkpoint
    spike: float | None = Field(default=20.0, gt=1)  # a loss this many times the usual is bad; none: no limit
    window: int = Field(default=50, ge=2)  # steps whose median loss is the usual


@dataclass(frozen=True, kw_only=True)
class _State:
    failures: int = 0  # in a row, up to now
    overflows: int = 0  # steps in a row whose gradient was no number, up to now, with a gradient scaler
    skipped_steps: int = 0  # in the whole run, also in parts that it went back behind
    rollbacks: int = 0
    back_at: int | None = None  # the step of the checkpoint that the run went back to last
    losses: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # of phases, in the last good steps
    at_first: Mapping[str, float] = field(default_factory=dict)  # the usual loss of each in its first window


class Guard:
    """Judges each step. `last_good(before)` finds the newest checkpoint that one can go back to, of a step
    below `before` if that is given.
    """

    def __init__(
        self,
        config: GuardConfig,
        *,
        warn: Callable[[str], None],
        last_good: Callable[[int | None], Checkpoint | None],
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

    def fault_of_loss(self, loss: float, phase: str) -> str | None:
        """What is wrong with it, in words. Where a loss may be below 0, as those of GANs, nothing is so many
        times the usual: then it must only be a number. Nor is one too large that was usual at first: where
        nearly all is learnt, a single hard sample is many times the rest.
        """
        if not math.isfinite(loss):
            return f"the loss is {loss}"
        losses, spike = self._state.losses.get(phase, ()), self._config.spike
        if spike is None or len(losses) < self._config.window or min(losses) < 0:
            return None
        usual = statistics.median(losses)
        if usual > 0 and loss > max(spike * usual, self._state.at_first.get(phase, 0.0)):
            return f"the loss is {loss:.4g}, {loss / usual:.0f} times the usual {usual:.4g} (guard.spike)"
        return None

    def fault_of_norm(self, norm: float, *, scaled: bool) -> str | None:
        """What is wrong with it, in words. With a gradient scaler some overflows are how it finds its scale,
        and no step is made of them anyway; without end they are a fault.
        """
        if math.isfinite(norm):
            if self._state.overflows:
                self._state = replace(self._state, overflows=0)
            return None
        if not scaled:
            return f"the gradient's norm is {norm}"
        self._state = replace(self._state, overflows=self._state.overflows + 1)
        if self._state.overflows <= MAX_OVERFLOWS:
            return None
        return f"the gradient's norm is {norm}, as in {self._state.overflows - 1} steps before, at any scale"

    def passed(self, losses: Mapping[str, float]) -> None:
        """A step, with the loss of each of its phases."""
        known, window = self._state.losses, self._config.window
        added = {phase: (*known.get(phase, ()), loss)[-window:] for phase, loss in losses.items()}
        first = {
            phase: statistics.median(last)
            for phase, last in added.items()
            if len(last) == window and phase not in self._state.at_first
        }
        self._state = replace(
            self._state, failures=0, losses={**known, **added}, at_first={**self._state.at_first, **first}
        )

    def failed(self, step: int, fault: str, batch: Batch, *, phase: str | None = None) -> None:
        """Counts step number `step`, and names its samples. `phase`: the one that is left out, where those
        before it have moved their parameters already.
        """
        state = self._state
        self._state = replace(state, failures=state.failures + 1, skipped_steps=state.skipped_steps + 1)
        what = f"step {step}" if phase is None else f"the {phase} phase of step {step}"
        self.warn(f"{what} is left out: {fault}; samples: {', '.join(batch.keys)}")

    def way_back(self, step: int) -> Checkpoint:
        """The checkpoint that the run goes back to from `step`; `BoxcrewError` where it has to stop. Where
        the newest is the one that it went back to last, the trouble may be in it: then the one before.
        """
        state = self._state
        trouble = f"step {step}: {state.failures} steps in a row failed"
        advice = (
            "look at the samples that train.log names; then begin anew with a lower optim.rate, optim.clip=10"
        )
        if state.rollbacks >= MAX_ROLLBACKS:
            raise BoxcrewError(f"{trouble}, after going back {state.rollbacks} times", advice=advice)
        found = self._last_good(None)
        if found is None:
            raise BoxcrewError(f"{trouble}, and there is no checkpoint to go back to", advice=advice)
        if found.step == state.back_at:
            return self._last_good(found.step) or found
        return found

    def went_back(self, before: Mapping[str, Any], *, to: int) -> None:
        """After the state of the checkpoint of step `to` was loaded. `before` is the state that the run gave
        up: what was counted in it stays counted.
        """
        gone = _State(**before)
        self._state = replace(
            self._state,
            failures=0,
            skipped_steps=gone.skipped_steps,
            rollbacks=gone.rollbacks + 1,
            back_at=to,
        )

    def state(self) -> dict[str, Any]:
        return asdict(self._state)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """No state at all is that of a run that had no guard."""
        losses = state.get("losses", {})
        if not isinstance(losses, Mapping):  # as they were kept when all phases had one history
            losses = {"train": losses}
        kept = {phase: tuple(values) for phase, values in losses.items()}
        self._state = _State(**{**state, "losses": kept})
