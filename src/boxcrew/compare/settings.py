"""The settings of a comparison, and those of each of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from boxcrew.api import run_config
from boxcrew.core.config import Config, Tree, commas
from boxcrew.core.errors import UsageError
from boxcrew.core.registry import suggest
from boxcrew.recipes import RECIPES
from boxcrew.tasks.detection import DetectionConfig
from boxcrew.train.config import RunConfig

ALL = ("rcnn", "sppnet", "fast_rcnn", "faster_rcnn_mobile", "yolo", "ssdlite")
"""The recipes of the six detectors, in the order of their papers."""

BACKBONE = "pplcnetv2_base"
_AT_THE_END: Tree = {"evaluation": {"every_epochs": 1e6}}
"""One evaluation, after training: of R-CNN one takes minutes, which its training would lose."""

_IN_BACKBONE, _LAST_STAGE = "detector.backbone.", "detector.backbone.body.stage4*"

Names = Annotated[tuple[str, ...], commas]


class CompareConfig(Config):
    """The settings of `boxcrew compare`. All others are settings of every run."""

    detectors: Names = ()
    """Recipes to train, or `all` for the six detectors on one backbone."""
    runs: Annotated[tuple[Path, ...], commas] = ()
    """Finished runs to compare instead."""
    out: Path | None = None
    """Directory of the comparison."""
    name: str = "compare"
    """Its name under runs/compare, if out= is not given."""
    settings: Mapping[str, Any] = Field(default_factory=dict)
    """Settings of every run."""

    @model_validator(mode="after")
    def _is_one_kind(self) -> CompareConfig:
        if bool(self.detectors) == bool(self.runs):
            raise UsageError(
                "give either detectors= or runs=",
                advice="boxcrew compare data=photos detectors=all time=10m, or runs=A,B",
            )
        if self.runs and self.settings:
            raise UsageError(f"{next(iter(self.settings))}=: has no effect on finished runs")
        return self

    def with_absolute_paths(self) -> CompareConfig:
        """Return a copy that can be resumed from any directory."""
        settings, data = dict(self.settings), self.settings.get("data")
        if isinstance(data, str) and Path(data).exists():
            settings["data"] = str(Path(data).resolve())
        runs = tuple(path.resolve() for path in self.runs)
        return self.model_copy(update={"settings": settings, "runs": runs})

    def configs(self) -> dict[str, RunConfig]:
        """Return the settings of each run by its name."""
        names = ALL if self.detectors == ("all",) else self.detectors
        return {name: self._config(name, same_backbone=self.detectors == ("all",)) for name in names}

    def _config(self, name: str, *, same_backbone: bool) -> RunConfig:
        if name not in RECIPES.names():
            raise UsageError(f"detectors={name}: no such recipe; {suggest(name, RECIPES.names())}")
        base = _AT_THE_END | (_on_backbone(RECIPES.get(name)()) if same_backbone else {})
        config = run_config(name, _merged(base, self.settings))
        if not isinstance(config.task, DetectionConfig):
            advice = "train each with boxcrew train, then compare the finished runs: runs=A,B"
            raise UsageError(f"detectors={name}: not a detector", advice=advice)
        if config.deploy.replicas not in {1, "auto"}:
            advice = "train each with boxcrew train, then compare the finished runs: runs=A,B"
            raise UsageError("deploy.replicas=: a comparison trains in one process", advice=advice)
        return config.changed({"deploy": {"replicas": 1}})


def _on_backbone(recipe: RunConfig) -> Tree:
    """Return the settings that put a recipe on the common backbone. Of a backbone that learns, the last stage
    does.
    """
    patterns = [_LAST_STAGE if name.startswith(_IN_BACKBONE) else name for name in recipe.trainable]
    return {
        "detector": {"backbone": BACKBONE},
        "init": {"kind": "pretrained", "weights": "pplcnetv2"},
        "trainable": list(dict.fromkeys(patterns)),
    }


def _merged(base: Tree, changes: Mapping[str, Any]) -> Tree:
    """Return nested settings with changes, which win."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
