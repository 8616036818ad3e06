"""The guard against bad steps: each is skipped, and after several in a row the run rolls back."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from typing import Any

from pydantic import Field

from boxcrew.core.config import Config
from boxcrew.core.errors import BoxcrewError
from boxcrew.core.types import Batch
from boxcrew.deploy.deployment import Deployment
from boxcrew.train.loop.checkpoint import Checkpoint, broadcast_checkpoint

MAX_ROLLBACKS = 3
ROLLBACK_RATE = 0.5  # factor of the learning rate after each rollback
MAX_OVERFLOWS = 20  # consecutive ones that are normal: a gradient scaler halves its scale after each


class GuardConfig(Config):
    group = "guard"

    failures: int = Field(default=5, ge=1)
    """Bad steps in a row after which the run goes back to a checkpoint."""
    spike: float | None = Field(default=20.0, gt=1)
    """A loss this many times the usual one is bad; none sets no limit."""
    window: int = Field(default=50, ge=2)
    """Steps whose median loss is the usual one."""


@dataclass(frozen=True, kw_only=True)
class _GuardState:
    failures: int = 0  # consecutive, up to now
    overflows: int = 0  # consecutive steps with a non-finite gradient, with a gradient scaler
    skipped_steps: int = 0  # in the full run, including steps that a rollback discarded
    rollbacks: int = 0
    back_at: int | None = None  # the step of the last rollback's checkpoint
    losses: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # by phase, of the last good steps
    at_first: Mapping[str, float] = field(default_factory=dict)  # by phase, the median of the first window


@dataclass(eq=False, repr=False)
class Guard:
    """Decides whether each step is good. `last_good(before)` returns the newest checkpoint to roll back to,
    of a step below `before` if that is given.
    """

    config: GuardConfig
    _: KW_ONLY
    warn: Callable[[str], None]
    last_good: Callable[[int | None], Checkpoint | None]
    deployment: Deployment | None = None
    _state: _GuardState = field(default_factory=_GuardState, init=False)

    @property
    def failures(self) -> int:
        """The number of consecutive skipped steps up to now."""
        return self._state.failures

    @property
    def skipped_steps(self) -> int:
        return self._state.skipped_steps

    @property
    def rollbacks(self) -> int:
        return self._state.rollbacks

    @property
    def rate_factor(self) -> float:
        return math.pow(ROLLBACK_RATE, self._state.rollbacks)

    @property
    def must_roll_back(self) -> bool:
        """True after `guard.failures` consecutive bad steps."""
        return self._state.failures >= self.config.failures

    def fault_of_loss(self, loss: float, phase: str) -> str | None:
        """Describe what is wrong with a loss, or return None.

        A loss that can be negative, as in GANs, only has to be finite: it has no usual size. A loss that was
        usual at the start is never a spike: late in training a single hard sample is many times the rest.
        """
        if not math.isfinite(loss):
            return f"the loss is {loss}"
        losses, spike = self._state.losses.get(phase, ()), self.config.spike
        if spike is None or len(losses) < self.config.window or min(losses) < 0:
            return None
        usual = statistics.median(losses)
        if usual > 0 and loss > max(spike * usual, self._state.at_first.get(phase, 0.0)):
            return f"the loss is {loss:.4g}, {loss / usual:.0f} times the usual {usual:.4g} (guard.spike)"
        return None

    def fault_of_norm(self, norm: float, *, scaled: bool) -> str | None:
        """Describe what is wrong with a gradient norm, or return None.

        A gradient scaler finds its scale by overflows and skips those steps itself; only too many in a row
        are a fault.
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

    def record_success(self, losses: Mapping[str, float]) -> None:
        """Record a good step with the loss of each of its phases."""
        known, at_first, window = dict(self._state.losses), dict(self._state.at_first), self.config.window
        for phase, loss in losses.items():
            known[phase] = (*known.get(phase, ()), loss)[-window:]
            if len(known[phase]) == window and phase not in at_first:
                at_first[phase] = statistics.median(known[phase])
        self._state = replace(self._state, failures=0, losses=known, at_first=at_first)

    def record_failure(self, step: int, fault: str, batch: Batch, *, phase: str | None = None) -> None:
        """Count a bad step and warn with its samples. `phase` is the one that was skipped, if earlier phases
        of the step have already updated their parameters.
        """
        state = self._state
        self._state = replace(state, failures=state.failures + 1, skipped_steps=state.skipped_steps + 1)
        skipped = f"step {step}" if phase is None else f"the {phase} phase of step {step}"
        self.warn(f"{skipped} is skipped: {fault}; samples: {', '.join(batch.keys)}")

    def rollback_checkpoint(self, step: int) -> Checkpoint:
        """Return the checkpoint to roll back to from `step`; raise `BoxcrewError` if the run has to stop.
        Steps fail on all replicas at once: all call this, and the chief broadcasts what it finds.
        """
        if self.deployment is None or self.deployment.group.num_replicas == 1:
            return self._find_checkpoint(step)
        if self.deployment.plan.staleness is not None:
            raise BoxcrewError(
                f"step {step}: too many steps failed, and replicas at different steps cannot roll back",
                advice="use a lower optim.rate=, or no deploy.staleness=; the last checkpoint can be resumed",
            )
        checkpoint = self._find_checkpoint(step) if self.deployment.is_chief else None
        return broadcast_checkpoint(checkpoint, self.deployment.group)

    def _find_checkpoint(self, step: int) -> Checkpoint:
        """Return the newest checkpoint, or the one before if the last rollback used it: it may be bad."""
        state = self._state
        trouble = f"step {step}: {state.failures} steps in a row failed"
        remedy = "train anew with a lower optim.rate= or optim.clip=10"
        advice = f"check the samples named in train.log, then {remedy}"
        if state.rollbacks >= MAX_ROLLBACKS:
            raise BoxcrewError(f"{trouble}, after {state.rollbacks} rollbacks", advice=advice)
        newest = self.last_good(None)
        if newest is None:
            raise BoxcrewError(f"{trouble}, and there is no checkpoint to roll back to", advice=advice)
        if newest.step == state.back_at:
            return self.last_good(newest.step) or newest
        return newest

    def after_rollback(self, before: Mapping[str, Any], *, to: int) -> None:
        """Count a rollback to step `to`, whose state was just loaded; counts continue those of `before`."""
        skipped, rollbacks = before["skipped_steps"], before["rollbacks"] + 1
        self._state = replace(self._state, failures=0, skipped_steps=skipped, rollbacks=rollbacks, back_at=to)

    def state(self) -> dict[str, Any]:
        return asdict(self._state)

    def load_state(self, state: Mapping[str, Any]) -> None:
        losses = {phase: tuple(values) for phase, values in state["losses"].items()}
        self._state = _GuardState(**{**state, "losses": losses})
