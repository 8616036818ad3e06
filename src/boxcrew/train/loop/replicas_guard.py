"""The guard of one replica among several, who must go back together."""

from __future__ import annotations

from collections.abc import Callable

from boxcrew.core.errors import BoxcrewError
from boxcrew.deploy.deployment import Deployment
from boxcrew.train.loop.checkpoint import Checkpoint, shared
from boxcrew.train.loop.guard import Guard, GuardConfig


class ReplicasGuard(Guard):
    """The chief finds the checkpoint, the others get it from there: all come by, for steps fail alike."""

    def __init__(
        self,
        config: GuardConfig,
        deployment: Deployment,
        *,
        warn: Callable[[str], None],
        last_good: Callable[[int | None], Checkpoint | None],
    ) -> None:
        super().__init__(config, warn=warn, last_good=last_good)
        self._deployment = deployment

    def way_back(self, step: int) -> Checkpoint:
        if self._deployment.plan.staleness is not None:
            raise BoxcrewError(
                f"step {step}: too many steps in a row have failed, and replicas that are at different steps "
                "cannot go back together",
                advice="a lower optim.rate=, or no deploy.staleness=; boxcrew resume goes on from the last "
                "checkpoint",
            )
        own = super().way_back(step) if self._deployment.is_chief else None
        return shared(own, self._deployment.group)
