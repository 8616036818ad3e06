"""The state of a plan's execution: what may change while it runs. The plan itself stays as it was made."""

from __future__ import annotations

from dataclasses import dataclass

from boxcrew.plan.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Execution:
    """The plan that steps really follow. It is replaced, never changed."""

    plan: Plan  # with more accumulation than was planned, once memory has run out
    least_parts: int = 1  # micro-batches of a step that memory has shown to be needed

    @property
    def num_parts(self) -> int:
        """The micro-batches of a step."""
        return self.plan.accumulation

    def with_parts(self, num: int) -> Execution:
        """Return an execution with at least `num` micro-batches a step. `UsageError` if the shares of
        several replicas do not allow as many.
        """
        plan = self.plan
        if num > plan.accumulation:
            plan = Plan.of(plan.tree() | {"accumulation": num})
        return Execution(plan=plan, least_parts=max(num, self.least_parts))
