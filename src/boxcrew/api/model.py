"""The base of all trained networks in Python: loading, training, measuring and describing them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
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
from boxcrew.train.run.loading import Loaded, Which, described, load_described
from boxcrew.train.run.validate import ValConfig, validate

KINDS = {
    "detection": ("a detector", "Detector"),
    "classification": ("a classifier", "Classifier"),
    "language": ("a language model", "TextModel"),
    "gan": ("a GAN", "Generator"),
}
"""For each kind of network, what people call it and the class of `boxcrew` that uses it."""


def kind_of(task: str, classes: Sequence[str]) -> str:
    """Return a key of `KINDS`: a network for sequences is a language model if its data has no classes."""
    if task == "sequence":
        return "classification" if classes else "language"
    return task


def stored_kind(run: Path, which: str) -> str:
    """Return the kind of network in a run directory or weight file."""
    meta = described(run, which=which)[1]
    return kind_of(meta["task"]["name"], meta["facts"]["classes"])


class Model(ABC):
    """A trained network, ready to predict on one device."""

    kind: ClassVar[str]  # a key of KINDS
    default_recipe: ClassVar[str]

    def __init__(self, loaded: Loaded, path: Path, which: Which, device: str) -> None:
        self.path = path
        self._loaded = loaded
        self._which: Which = which
        self._device = device

    @classmethod
    def load(cls, run: str | Path, which: Which = "best", device: str = "auto") -> Self:
        """Load a run directory, of which the best or the last weights are used, or a weight file of one."""
        weights, meta = described(Path(run), which=which)
        cls._require(f"{run} is", kind_of(meta["task"]["name"], meta["facts"]["classes"]))
        return cls(load_described(weights, meta, device=device), Path(run), which, device)

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

    def val(self, data: str | Path | None = None, *, split: str = "val", batch: int = 16) -> dict[str, Any]:
        """Return the report on a data set, by default the run's own: `report["numbers"]["AP50"]`."""
        config = ValConfig(
            run=self.path,
            data=None if data is None else str(data),
            split=split,
            weights=self._which,
            batch=batch,
            device=self._device,
        )
        report: dict[str, Any] = validate(config, Screen())[self._which]
        return report

    @property
    def folder(self) -> Path:
        """The folder under `runs/` for results of such networks."""
        return Path(self._loaded.config.folder)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._summary()}, {self.path})"

    @abstractmethod
    def _summary(self) -> str:
        """Return the network in a few words, such as `ssdlite, 8 classes`."""

    @classmethod
    def _require(cls, subject: str, kind: str) -> None:
        """Raise `UsageError` if this class is not the one for a kind of network."""
        if kind != cls.kind:
            noun, name = KINDS[kind]
            raise UsageError(f"{subject} {noun}: use boxcrew.{name}")


def _trained_kind(config: RunConfig) -> str:
    """Return the kind that a run will train. Only the data tells whether sequences have classes."""
    task = config.task
    if task.name != "sequence":
        return kind_of(task.name, ())
    opened = TASKS.get(task.name).open(task, OpenOptions(data=config.data, seed=config.seed))
    return kind_of(task.name, opened.facts["classes"])
