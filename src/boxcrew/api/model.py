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
from boxcrew.tasks.base import TASKS
from boxcrew.tasks.data import OpenOptions
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.loading import Loaded, Which, load_task
from boxcrew.train.run.validate import ValConfig, validate

KINDS = {
    "detection": ("a detector", "Detector"),
    "classification": ("a classifier", "Classifier"),
    "language": ("a language model", "TextModel"),
    "gan": ("a GAN", "Generator"),
}
"""For each kind of network, what people call it and the class of `boxcrew` that uses it."""


def kind_of(task: str, facts: Mapping[str, Any]) -> str:
    """Return a key of `KINDS`: a network for sequences is a language model if its data has no classes."""
    if task == "sequence":
        return "classification" if facts["classes"] else "language"
    return task


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A trained network, ready to predict on one device."""

    kind: ClassVar[str]  # a key of KINDS
    default_recipe: ClassVar[str]

    loaded: Loaded
    path: Path  # of the run directory or weight file
    which: Which
    device: str

    @classmethod
    def load(cls, run: str | Path, which: Which = "best", device: str = "auto") -> Self:
        """Load a run directory, of which the best or the last weights are used, or a weight file of one."""

        def check(meta: Mapping[str, Any]) -> None:
            cls._require(f"{run} is", kind_of(meta["task"]["name"], meta["facts"]))

        return cls(load_task(Path(run), which=which, device=device, check=check), Path(run), which, device)

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
        cls._require(f"recipe {recipe} trains", _trained_kind(config))
        outcome = train_run(config, Screen(Console(stderr=True) if verbose else None))
        return cls.load(outcome.folder, device=config.device)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.loaded.task.network.classes

    def val(self, data: str | Path | None = None, *, split: str = "val", batch: int = 16) -> dict[str, Any]:
        """Return the report on a data set, by default the run's own: `report["numbers"]["AP50"]`."""
        tree = {
            "run": self.path,
            "weights": self.which,
            "device": self.device,
            "split": split,
            "batch": batch,
        }
        config = ValConfig.of(tree if data is None else {**tree, "data": str(data)})
        report: dict[str, Any] = validate(config, Screen())[self.which]
        return report

    def __repr__(self) -> str:
        words = [
            self.loaded.config.title.rpartition(" by ")[2],
            f"{len(self.classes)} classes",
            str(self.path),
        ]
        return f"{type(self).__name__}({', '.join(words if self.classes else words[::2])})"

    @classmethod
    def _require(cls, subject: str, kind: str) -> None:
        """Raise `UsageError` if this class is not the one for a kind of network."""
        if kind != cls.kind:
            noun, name = KINDS[kind]
            raise UsageError(f"{subject} {noun}: use boxcrew.{name}")


def _trained_kind(config: RunConfig) -> str:
    """Return the kind that a run will train. Only the data shows whether sequences have classes."""
    name = config.task.name
    if name != "sequence":
        return kind_of(name, {})
    opened = TASKS.get(name).open(config.task, OpenOptions(data=config.data, seed=config.seed))
    return kind_of(name, opened.facts)
