"""The base of all trained networks in Python: loading, training, measuring and describing them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from rich.console import Console

from boxcrew.api.runs import run_config, train_run
from boxcrew.core.config import Tree, put
from boxcrew.core.errors import UsageError
from boxcrew.tasks.base import TASKS, PredictionKind
from boxcrew.tasks.data import OpenOptions
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.loading import Loaded, Which, load_task
from boxcrew.train.run.validate import ValConfig, validate

CLASSES: dict[PredictionKind, tuple[str, str]] = {
    "boxes": ("a detector", "Detector"),
    "classes": ("a classifier", "Classifier"),
    "text": ("a language model", "TextModel"),
    "images": ("a GAN", "Generator"),
}
"""For what a network predicts, what people call the network and the class of `boxcrew` that uses it."""


def prediction_kind(meta: Mapping[str, Any]) -> PredictionKind:
    """Return what the network of a weight file predicts, from the metadata in the file."""
    kind = TASKS.get(meta["task"]["name"])
    return kind.predicts(kind.facts_class.from_json(meta["facts"]))


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A trained network, ready to predict on one device."""

    predicts: ClassVar[PredictionKind]
    default_recipe: ClassVar[str]

    loaded: Loaded
    path: Path  # of the run directory or weight file
    which: Which
    device: str

    @classmethod
    def load(cls, run: str | Path, which: Which = "best", device: str = "auto") -> Self:
        """Load a run directory, of which the best or the last weights are used, or a weight file of one."""
        path = Path(run)
        loaded = load_task(
            path,
            which=which,
            device=device,
            check=lambda meta: cls._require(f"{run} is", prediction_kind(meta)),
        )
        return cls(loaded, path, which, device)

    @classmethod
    def train(cls, recipe: str | None = None, *, verbose: bool = True, **settings: Any) -> Self:
        """Train, and load the best weights.
        Settings are those of the command line: `data="photos"`, `epochs=20`, `optim={"rate": 1e-3}`.
        """
        tree: Tree = {}
        for key, value in settings.items():
            put(tree, key, str(value) if isinstance(value, Path) else value)
        recipe = recipe or cls.default_recipe
        config = run_config(recipe, tree)
        cls._require(f"recipe {recipe} trains", _trained_prediction_kind(config))
        outcome = train_run(config, Screen(Console(stderr=True) if verbose else None))
        return cls.load(outcome.folder, device=config.device)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.loaded.task.network.classes

    def val(self, data: str | Path | None = None, *, split: str = "val", batch: int = 16) -> dict[str, Any]:
        """Return the report on a data set, by default the run's own: `report["numbers"]["AP50"]`."""
        tree: Tree = {"run": self.path, "weights": self.which, "device": self.device}
        tree |= {"data": None if data is None else str(data), "split": split, "batch": batch}
        report: dict[str, Any] = validate(ValConfig.of(tree), Screen())[self.which]
        return report

    def __repr__(self) -> str:
        network = self.loaded.config.title.rpartition(" by ")[2]
        classes = f"{len(self.classes)} classes, " if self.classes else ""
        return f"{type(self).__name__}({network}, {classes}{self.path})"

    @classmethod
    def _require(cls, subject: str, predicts: PredictionKind) -> None:
        """Raise `UsageError` if another class is the one for what a network predicts."""
        if predicts != cls.predicts:
            noun, name = CLASSES[predicts]
            raise UsageError(f"{subject} {noun}: use boxcrew.{name}")


def _trained_prediction_kind(config: RunConfig) -> PredictionKind:
    """Return what the network of a run will predict, for which some tasks have to open their data."""
    if config.task.predicts is not None:
        return config.task.predicts
    kind = TASKS.get(config.task.name)
    return kind.predicts(kind.open(config.task, OpenOptions(data=config.data, seed=config.seed)).facts)
