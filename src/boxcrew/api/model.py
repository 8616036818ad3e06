"""The base of all trained networks in Python: loading, training, measuring and describing them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar

from boxcrew.core.config import Tree, put
from boxcrew.core.errors import UsageError
from boxcrew.runtime.engine_facts import EngineFacts
from boxcrew.train.bucket.records import local_run, weights

if TYPE_CHECKING:
    from boxcrew.tasks.base import PredictionKind
    from boxcrew.train.config import RunConfig
    from boxcrew.train.run.loading import Loaded

Which = Literal["best", "last"]

CLASSES: dict[PredictionKind, tuple[str, str]] = {
    "boxes": ("a detector", "Detector"),
    "classes": ("a classifier", "Classifier"),
    "text": ("a language model", "TextModel"),
    "images": ("a GAN", "Generator"),
}
"""For what a network predicts, what people call the network and the class of `boxcrew` that uses it."""


def prediction_kind(meta: Mapping[str, Any]) -> PredictionKind:
    """Return what the network of a weight file predicts, from the metadata in the file."""
    from boxcrew.tasks.base import TASKS

    kind = TASKS.get(meta["task"]["name"])
    return kind.predicts(kind.facts_class.from_json(meta["facts"]))


LoadedT = TypeVar("LoadedT")


@dataclass(frozen=True, eq=False, repr=False)
class Model(Generic[LoadedT]):
    """A trained network, ready to predict on one device."""

    predicts: ClassVar[PredictionKind]
    default_recipe: ClassVar[str]

    loaded: LoadedT
    path: Path  # of the run directory, weight file or exported file
    which: Which
    device: str

    @classmethod
    @abstractmethod
    def load(cls, run: str | Path, which: Which = "best", device: str = "auto") -> Self:
        """Load a run directory, of which the best or the last weights are used, a weight file of one, or an
        exported file.
        """

    @property
    @abstractmethod
    def classes(self) -> tuple[str, ...]: ...

    @property
    @abstractmethod
    def network_name(self) -> str: ...

    @property
    @abstractmethod
    def engine(self) -> EngineFacts:
        """The library that computes the network, and the numbers that it really computes with."""

    @property
    def _engine(self) -> str | None:
        """The engine that computes the network, if that is not torch."""
        return None

    @classmethod
    def _load_task(cls, path: Path, which: Which, device: str) -> Loaded:
        """Load a network of torch; `UsageError` if another class is the one for it."""
        loaded: Loaded = _with_torch("boxcrew.train.run.loading").load_task(
            path,
            which=which,
            device=device,
            check=lambda meta: cls._require(f"{path} is", prediction_kind(meta)),
        )
        return loaded

    @classmethod
    def train(cls, recipe: str | None = None, *, verbose: bool = True, **settings: Any) -> Self:
        """Train, and load the best weights.
        Settings are those of the command line: `data="photos"`, `epochs=20`, `optim={"rate": 1e-3}`.
        """
        from rich.console import Console

        runs, screen = _with_torch("boxcrew.api.runs"), _with_torch("boxcrew.train.output.screen")
        tree: Tree = {}
        for key, value in settings.items():
            put(tree, key, str(value) if isinstance(value, Path) else value)
        recipe = recipe or cls.default_recipe
        config = runs.run_config(recipe, tree)
        cls._require(f"recipe {recipe} trains", _trained_prediction_kind(config))
        outcome = runs.train_run(config, screen.Screen(Console(stderr=True) if verbose else None))
        return cls.load(outcome.folder, device=config.device)

    def val(self, data: str | Path | None = None, *, split: str = "val", batch: int = 16) -> dict[str, Any]:
        """Return the report on a data set, by default the run's own: `report["numbers"]["AP50"]`."""
        validation, screen = (
            _with_torch("boxcrew.train.run.validate"),
            _with_torch("boxcrew.train.output.screen"),
        )
        tree: Tree = {"run": self.path, "weights": self.which, "device": self.device}
        tree |= {"engine": self._engine}
        tree |= {"data": None if data is None else str(data), "split": split, "batch": batch}
        reports = validation.validate(validation.ValConfig.of(tree), screen.Screen())
        report: dict[str, Any] = reports[self.which]
        return report

    def __repr__(self) -> str:
        classes = f"{len(self.classes)} classes, " if self.classes else ""
        return f"{type(self).__name__}({self.network_name}, {classes}{self.path})"

    @classmethod
    def _require(cls, subject: str, predicts: PredictionKind) -> None:
        """Raise `UsageError` if the network predicts something that another class of the API is for."""
        if predicts != cls.predicts:
            noun, name = CLASSES[predicts]
            raise UsageError(f"{subject} {noun}: use boxcrew.{name}")


class TorchModel(Model["Loaded"]):
    """A network that is used with torch, also if an engine computes it."""

    @classmethod
    def load(cls, run: str | Path, which: Which = "best", device: str = "auto") -> Self:
        """Load a run directory, of which the best or the last weights are used, a weight file of one, or an
        exported file.
        """
        path = local_run(run, weights)
        return cls(cls._load_task(path, which, device), path, which, device)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.loaded.task.network.classes

    @property
    def engine(self) -> EngineFacts:
        return self.loaded.engine

    @property
    def network_name(self) -> str:
        return network_name(self.loaded)


def network_name(loaded: Loaded) -> str:
    """Return the name of a loaded network, such as picodet."""
    return str(loaded.config.title).rpartition(" by ")[2]


def _with_torch(module: str) -> Any:
    """Import a module that needs torch; `UsageError` where boxcrew was installed without it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "boxcrew":
            raise
        raise UsageError(
            f"{error.name} is not installed: without it only exported files can be used",
            advice="pip install 'boxcrew[train]'",
        ) from None


def _trained_prediction_kind(config: RunConfig) -> PredictionKind:
    """Return what the network of a run will predict, for which some tasks have to open their data."""
    from boxcrew.tasks.base import TASKS
    from boxcrew.tasks.data import OpenOptions

    if config.task.predicts is not None:
        return config.task.predicts
    kind = TASKS.get(config.task.name)
    return kind.predicts(kind.open(config.task, OpenOptions(data=config.data, seed=config.seed)).facts)
