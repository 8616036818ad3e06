"""A stage: one part of a training that has several, such as fine-tuning and then SVMs on its features.

A task whose training has stages returns them from `TaskConfig.stages`; that of detection returns those of its
detector, `DetectorConfig.stages`. Each stage starts from the weights of the one before. What a *solve* stage
finds is written into layers or buffers of the network, so that checkpoints, prediction and export know
nothing of stages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage that trains by gradient descent, or that calls `TaskData.solve` (of a detector,
    `DetectorNet.solve`) once.
    """

    name: str  # also of its directory, after its number
    kind: Literal["descend", "solve"] = "descend"
    fraction: float = 0.0  # of the steps, epochs, time and deadline of the run; 0 for a solve stage: no limit
    passes: float | None = None  # of a solve stage over all training samples; None: its time is not predicted
    changes: Mapping[str, Any] = field(default_factory=dict)  # settings of the run that differ in this stage

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ValueError(f"stage {self.name!r}: not a name of small letters, digits and underscores")
        if not (0 < self.fraction <= 1 if self.kind == "descend" else self.fraction == 0):
            raise ValueError(f"stage {self.name}: fraction {self.fraction:g} is not possible for {self.kind}")


def stage_folders(stages: Sequence[Stage]) -> list[str]:
    """Return the names of the directories of the stages of a run, such as `2-svm`."""
    return [f"{number}-{stage.name}" for number, stage in enumerate(stages, start=1)]
