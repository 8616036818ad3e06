"""What fills the parameters before step 0, and the record of what it did."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from boxcrew.core.config import Config, Names, commas
from boxcrew.core.errors import ModelError, UsageError
from boxcrew.core.registry import suggest
from boxcrew.core.units import counted
from boxcrew.nets.network import Network
from boxcrew.nets.torchvision_names import is_torchvision_ssd300, ssd300_from_torchvision
from boxcrew.nets.weights import (
    State,
    Weights,
    find_weights,
    match_state,
    packaged_weights,
    read_weights,
    summed_over_colours,
    timm_weights,
)


@dataclass(frozen=True, kw_only=True)
class InitReport:
    """What was loaded, left out and missing; stored in the run and shown in short."""

    kind: str
    source: str
    how: str = ""
    loaded: tuple[str, ...] = ()
    remade: tuple[str, ...] = ()  # carried over for the classes or characters that both sets have
    left_out: tuple[str, ...] = ()  # in the file, not used; counters of BatchNorms are not worth a word
    missing: tuple[str, ...] = ()  # in the network, not in the file: they keep their random start
    kept_classes: tuple[str, ...] = ()
    kept_characters: str = ""

    def sentence(self) -> str:
        if not self.loaded and not self.remade:
            return f"init: {self.source}"
        parts = [f"init: {self.kind} from {self.source}: {len(self.loaded)} tensors loaded {self.how}"]
        if self.remade:
            characters = [counted(len(self.kept_characters), "character")] if self.kept_characters else []
            kept = ", ".join([*self.kept_classes, *characters]) or "none"
            parts.append(f"{len(self.remade)} re-made for the data here (kept: {kept})")
        parts.append(f"{len(self.left_out)} left out")
        parts.append(f"{len(self.missing)} not in the file (random start)")
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class InitConfig(Config, ABC):
    group = "init"
    shorthand = "kind"
    kinds: ClassVar[dict[str, type[InitConfig]]] = {}

    kind: str

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        InitConfig.kinds[cls.__name__.lower()] = cls

    @abstractmethod
    def fill(self, network: Network) -> InitReport:
        """Fills the network's parameters in place, and says what it did."""


def init_config_class(kind: str) -> type[InitConfig]:
    if kind not in InitConfig.kinds:
        raise UsageError(f"init={kind}: no such way to begin; {suggest(kind, list(InitConfig.kinds))}")
    return InitConfig.kinds[kind]


class Scratch(InitConfig):
    """Random numbers, from the run's seed."""

    kind: Literal["scratch"] = "scratch"

    def fill(self, network: Network) -> InitReport:  # noqa: ARG002 - networks are made filled
        return InitReport(kind=self.kind, source="scratch: random weights from the seed")


Colour = Annotated[tuple[float, float, float], commas]


class Pretrained(InitConfig):
    """A backbone's published weights."""

    kind: Literal["pretrained"] = "pretrained"
    weights: str = "efficientnet_lite0"  # that package, a weight file, or a timm name (downloads)
    mean: Colour | None = None  # of 0..1 pixels, where the file's differ from the usual
    std: Colour | None = None

    def fill(self, network: Network) -> InitReport:
        prefix, normalize = network.backbone_prefix(), network.normalization()
        if prefix is None:
            raise UsageError(
                "init=pretrained: this network has no backbone that published weights are for",
                advice="init=scratch, or init=finetune init.checkpoint= with weights of the same network",
            )
        weights = self._weights(features_only=not network.full_backbone)
        is_grey = normalize is not None and len(normalize.mean) == 1
        found = summed_over_colours(weights.state) if is_grey else weights.state
        wanted = {n.removeprefix(prefix): t for n, t in _floats(network).items() if n.startswith(prefix)}
        fitted, how = match_state(wanted, found)
        if len(fitted) < len(wanted) / 2:  # a few shapes agree by chance in any two networks
            raise ModelError(
                f"init.weights={self.weights}: only {len(fitted)} of its {len(found)} tensors fit "
                f"the backbone, which has {len(wanted)}",
                advice=f"its first is {_describe(found)}; the backbone's is {_describe(wanted)}",
            )
        _load(network, {prefix + name: value for name, value in fitted.items()})
        if normalize is not None:
            usual_mean, usual_std = network.expected_normalization()
            colours = (self.mean or weights.mean or usual_mean, self.std or weights.std or usual_std)
            normalize.set(*((fmean(values),) if is_grey else values for values in colours))
        used = {id(value) for value in fitted.values()}
        return InitReport(
            kind=self.kind,
            source=weights.source,
            how=how,
            loaded=tuple(prefix + name for name in fitted),
            left_out=tuple(name for name, t in found.items() if id(t) not in used and t.is_floating_point()),
            missing=tuple(prefix + name for name in wanted if name not in fitted),
        )

    def _weights(self, *, features_only: bool) -> Weights:
        if self.weights == "efficientnet_lite0":
            return packaged_weights(self.weights)
        if Path(self.weights).suffix in {".pth", ".pt", ".safetensors", ".bin"}:
            return read_weights(Path(self.weights))
        return timm_weights(self.weights, features_only=features_only)


class Resume(InitConfig):
    """Everything of another run: it goes on in a directory of its own. (A run goes on in its own directory by
    itself.)
    """

    kind: Literal["resume"] = "resume"
    run: Path

    def fill(self, network: Network) -> InitReport:  # noqa: ARG002 - the trainer loads more than weights
        return InitReport(kind=self.kind, source=f"resume: the newest checkpoint of {self.run}")


class Finetune(InitConfig):
    """A whole network trained before, for these classes or others; torchvision's `ssd300_vgg16` too."""

    kind: Literal["finetune"] = "finetune"
    checkpoint: Path  # a run directory, or a weight file
    exclude: Names = ()  # patterns of names to leave out
    rename: dict[str, str] = Field(default_factory=dict)  # beginnings in the file -> what they are here

    def fill(self, network: Network) -> InitReport:
        weights = read_weights(find_weights(self.checkpoint, which="best"))
        state = self._renamed(weights)
        excluded = matching(state, self.exclude, "init.exclude")
        offered = {name: value for name, value in state.items() if name not in excluded}
        facts = (weights.meta or {}).get("facts", {})
        old_classes = tuple(facts.get("classes", network.classes))
        tokens = remake_token_rows(network, offered, facts.get("meaning", network.meaning))
        rows = remake_class_rows(network, offered, old_classes) | tokens
        wanted = _floats(network)
        same = {
            n: t for n, t in offered.items() if n in wanted and t.shape == wanted[n].shape and n not in rows
        }
        if not same:
            raise ModelError(
                f"{weights.source}: none of its tensors fits this network",
                advice=f"its first is {_describe(state)}; the network's is {_describe(wanted)}",
            )
        _load(network, same | rows)
        return InitReport(
            kind=self.kind,
            source=weights.source,
            how="by name",
            loaded=tuple(same),
            remade=tuple(rows),
            left_out=tuple(
                name
                for name, t in state.items()
                if name not in same and name not in rows and t.is_floating_point()
            ),
            missing=tuple(name for name in wanted if name not in same and name not in rows),
            kept_classes=tuple(name for name in network.classes if name in old_classes) if rows else (),
            kept_characters=_shared(network.meaning["alphabet"], facts["meaning"]["alphabet"])
            if tokens
            else "",
        )

    def _renamed(self, weights: Weights) -> State:
        state = dict(weights.state)
        if is_torchvision_ssd300(state):
            state = ssd300_from_torchvision(state)
        for old, new in self.rename.items():
            if not any(name.startswith(old) for name in state):
                raise UsageError(
                    f"init.rename: no name in {weights.source} begins with {old!r}",
                    advice=f"its names look like {', '.join(list(state)[:3])}",
                )
            state = {
                new + name.removeprefix(old) if name.startswith(old) else name: value
                for name, value in state.items()
            }
        return state


def matching(names: Sequence[str] | State, patterns: Sequence[str], setting: str) -> set[str]:
    """The names that any pattern matches; a pattern that matches none is an error."""
    found: set[str] = set()
    for pattern in patterns:
        hits = {name for name in names if fnmatchcase(name, pattern)}
        if not hits:
            raise UsageError(
                f"{setting}: {pattern!r} matches no parameter",
                advice=f"names look like {', '.join(list(names)[:3])}",
            )
        found |= hits
    return found


def remake_class_rows(network: Network, offered: State, old_classes: tuple[str, ...]) -> State:
    """The class heads for this network's classes: rows of the background and of classes known by name come
    from `offered`, the others keep their random start. Empty where the classes are the same, in order.
    """
    background = range(network.background_rows)
    return _remade(
        network,
        offered,
        network.class_tensors(),
        (*background, *old_classes),
        (*background, *network.classes),
    )


def remake_token_rows(network: Network, offered: State, old_meaning: Mapping[str, Any]) -> State:
    """The same for what has a row for each character."""
    tensors = dict.fromkeys(network.token_tensors(), 1)
    if not tensors or "alphabet" not in old_meaning:
        return {}
    return _remade(network, offered, tensors, _token_names(old_meaning), _token_names(network.meaning))


RowNames = tuple[str | int, ...]
"""Numbers are of rows that are the same in any set."""


def _shared(ours: str, theirs: str) -> str:
    return "".join(one for one in ours if one in theirs)


def _token_names(meaning: Mapping[str, Any]) -> RowNames:
    return (*range(meaning["unknown"] + 1), *meaning["alphabet"])


def _remade(
    network: Network, offered: State, tensors: Mapping[str, int], old_names: RowNames, new_names: RowNames
) -> State:
    """`tensors`: how many blocks of these rows each has."""
    if old_names == new_names:
        return {}
    old_places = {name: row for row, name in enumerate(old_names)}
    new_rows = [row for row, name in enumerate(new_names) if name in old_places]
    old_rows = [old_places[new_names[row]] for row in new_rows]
    state = network.state_dict()
    remade: State = {}
    for name, blocks in tensors.items():
        if name not in offered or len(offered[name]) != blocks * len(old_names):
            continue
        if offered[name].shape[1:] != state[name].shape[1:]:
            continue
        old = offered[name].reshape(blocks, len(old_names), *offered[name].shape[1:])
        new = state[name].clone().reshape(blocks, len(new_names), *state[name].shape[1:])
        new[:, new_rows] = old[:, old_rows].to(new.dtype)
        remade[name] = new.reshape(state[name].shape)
    return remade


def _floats(network: Network) -> dict[str, Tensor]:
    return {name: t for name, t in network.state_dict().items() if torch.is_floating_point(t)}


def _load(network: Network, tensors: State) -> None:
    state = network.state_dict()
    with torch.no_grad():
        for name, value in tensors.items():
            state[name].copy_(value)


def _describe(tensors: dict[str, Tensor]) -> str:
    name, value = next(iter(tensors.items()))
    return f"{name} {tuple(value.shape)}"
