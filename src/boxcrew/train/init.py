"""The initialization of parameters before step 0: from scratch, published weights, or an earlier run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
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
from boxcrew.core.storage.address import Url
from boxcrew.core.units import counted
from boxcrew.nets.network import ClassRows, Network
from boxcrew.nets.packaged import PACKAGED, packaged_file, packaged_weights
from boxcrew.nets.weights import (
    State,
    Weights,
    find_weights,
    match_state,
    read_weights,
    require_timm_name,
    summed_over_colors,
    timm_weights,
)


@dataclass(frozen=True, kw_only=True)
class InitReport:
    """The tensors that were loaded, not used, and missing. It is written to `init.json`."""

    kind: str
    source: str
    how: str = ""
    loaded: tuple[str, ...] = ()
    remade: tuple[str, ...] = ()  # copied row by row for the classes or characters that both sets have
    left_out: tuple[str, ...] = ()  # in the file, not used; without the counters of BatchNorms
    missing: tuple[str, ...] = ()  # in the network, not in the file: they keep their random start
    kept_classes: tuple[str, ...] = ()
    kept_characters: str = ""

    def sentence(self) -> str:
        """Return the line for the screen."""
        if not self.loaded and not self.remade:
            return f"init: {self.source}"
        texts = [f"init: {self.kind} from {self.source}: {len(self.loaded)} tensors loaded {self.how}"]
        if self.remade:
            characters = [counted(len(self.kept_characters), "character")] if self.kept_characters else []
            kept = ", ".join([*self.kept_classes, *characters]) or "none"
            texts.append(f"{len(self.remade)} adapted to the new data (kept: {kept})")
        rest = f"{len(self.left_out)} not used, {len(self.missing)} not in the file (random start)"
        return ", ".join([*texts, rest])

    def with_second(self, second: InitReport) -> InitReport:
        """Return the report of this loading and a second one, into other parts of the same network."""
        return replace(
            self,
            source=f"{self.source} and {second.source}",
            loaded=self.loaded + second.loaded,
            left_out=self.left_out + second.left_out,
            missing=tuple(name for name in self.missing if name not in second.loaded) + second.missing,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class InitConfig(Config, ABC):
    group = "init"
    shorthand = "kind"
    kinds: ClassVar[dict[str, type[InitConfig]]] = {}

    kind: str
    """What fills the weights before step 0."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        InitConfig.kinds[cls.__name__.lower()] = cls

    def require_source(self) -> None:
        """Raise `ModelError`, before any data is read, if there are no such weights."""

    @abstractmethod
    def initialize(self, network: Network) -> InitReport:
        """Initialize the network's parameters in place and report what was done."""


def init_config_class(kind: str) -> type[InitConfig]:
    if kind not in InitConfig.kinds:
        raise UsageError(f"init={kind}: no such initialization; {suggest(kind, list(InitConfig.kinds))}")
    return InitConfig.kinds[kind]


class Scratch(InitConfig):
    """Random weights from the seed of the run."""

    kind: Literal["scratch"] = "scratch"

    def initialize(self, network: Network) -> InitReport:  # noqa: ARG002 - networks are built with random weights
        return InitReport(kind=self.kind, source="scratch: random weights from the seed")


Color = Annotated[tuple[float, float, float], commas]


class Pretrained(InitConfig):
    """Published weights for the backbone, and a random rest; or those of a complete detector, for COCO."""

    kind: Literal["pretrained"] = "pretrained"
    weights: str = "efficientnet_lite0"
    """pplcnetv2, efficientnet_lite0, picodet_coco, … (packages), a file, or a timm name (download)."""
    mean: Color | None = None
    """Mean of 0..1 pixels that the weights expect, if it is not the usual one."""
    std: Color | None = None
    """Standard deviation of 0..1 pixels that the weights expect, if it is not the usual one."""
    class_weights: str | None = None
    """Weights of detector.class_backbone, named as those of init.weights are; none: a random start."""

    def require_source(self) -> None:
        for name in filter(None, (self.weights, self.class_weights)):
            if name in PACKAGED:
                packaged_file(name)
            elif (file := _file(name)) is not None:
                read_weights(file)
            else:
                require_timm_name(name)

    def initialize(self, network: Network) -> InitReport:
        second = network.class_backbone()
        if self.class_weights and second is None:
            raise UsageError(
                f"init.class_weights={self.class_weights}: this network has no second backbone",
                advice="set detector.class_backbone= (detector=picodet has it), or leave it out",
            )
        report = self._fill_first(network)
        if second is None or not self.class_weights:
            return report
        weights = _weights(self.class_weights, features_only=True)
        fill = _fill_backbone(
            network, second.prefix, weights, setting=f"init.class_weights={self.class_weights}"
        )
        if weights.mean and weights.std:
            second.normalize.set(weights.mean, weights.std)
        return report.with_second(fill)

    def _fill_first(self, network: Network) -> InitReport:
        prefix, normalize = network.backbone_prefix(), network.normalization()
        if prefix is None:
            raise UsageError(
                "init=pretrained: this network has no backbone that published weights are for",
                advice="init=scratch, or init=finetune init.checkpoint= with weights of the same network",
            )
        weights = _weights(self.weights, features_only=not network.full_backbone)
        if self.weights in PACKAGED and PACKAGED[self.weights].classes:
            return self._fill_completely(network, weights)
        is_gray = normalize is not None and len(normalize.mean) == 1
        if is_gray:
            weights = replace(weights, state=summed_over_colors(weights.state))
        report = _fill_backbone(network, prefix, weights, setting=f"init.weights={self.weights}")
        if normalize is not None:
            usual_mean, usual_std = network.expected_normalization()
            statistics = (self.mean or weights.mean or usual_mean, self.std or weights.std or usual_std)
            normalize.set(*((fmean(values),) if is_gray else values for values in statistics))
        return report

    def _fill_completely(self, network: Network, weights: Weights) -> InitReport:
        """Load a complete detector, of which only rows of classes may be missing."""
        state = network.convert_foreign(dict(weights.state))
        wanted, rows = network.state_dict(), network.class_tensors()
        fitting = [name for name, t in state.items() if name in wanted and _fits(t, wanted[name])]
        # Parts that the published detector does not have at all, such as a second backbone, may be missing.
        published = {name.partition(".")[0] for name in fitting or wanted}
        names = [name for name in _without_counters(wanted) if name.partition(".")[0] in published]
        missing = set(names).difference(fitting, rows)
        if missing:
            first = next(name for name in wanted if name in missing)
            raise ModelError(
                f"init.weights={self.weights}: weights of another network: they lack {len(missing)} tensors "
                f"of this one, the first is {first} {tuple(wanted[first].shape)}",
                advice="they are for detector=picodet with its default detector.backbone and detector.neck",
            )
        report = load_network(network, weights, state, kind=self.kind)
        if (self.mean or self.std) and (normalize := network.normalization()) is not None:
            assert weights.mean is not None
            assert weights.std is not None
            normalize.set(self.mean or weights.mean, self.std or weights.std)
        return report


def _weights(name: str, *, features_only: bool) -> Weights:
    """Return packaged weights, those of a file, or timm's, of which `features_only` leaves out the last."""
    if name in PACKAGED:
        return packaged_weights(name)
    if (file := _file(name)) is not None:
        return read_weights(file)
    return timm_weights(name, features_only=features_only)


def _file(name: str) -> Path | None:
    """Return the weight file that a setting names; None if it is the name of a network."""
    path = Path(name)
    is_file = path.suffix in {".pth", ".pt", ".safetensors", ".bin"} or path.exists()
    return path if is_file else None


def _fill_backbone(network: Network, prefix: str, weights: Weights, *, setting: str) -> InitReport:
    """Load published weights into the backbone whose state names begin with `prefix`."""
    state = weights.state
    wanted = {n.removeprefix(prefix): t for n, t in _floats(network).items() if n.startswith(prefix)}
    fitted, how = match_state(wanted, state)
    if len(fitted) < len(wanted) / 2:  # a few shapes agree by chance in any two networks
        raise ModelError(
            f"{setting}: only {len(fitted)} of its {len(state)} tensors fit "
            f"the backbone, which has {len(wanted)}",
            advice=f"its first is {_describe(state)}; the backbone's is {_describe(wanted)}",
        )
    network.load_state_dict({prefix + name: value for name, value in fitted.items()}, strict=False)
    used = {id(value) for value in fitted.values()}
    return InitReport(
        kind="pretrained",
        source=weights.source,
        how=how,
        loaded=tuple(prefix + name for name in fitted),
        left_out=tuple(name for name, t in state.items() if id(t) not in used and t.is_floating_point()),
        missing=tuple(prefix + name for name in wanted if name not in fitted),
    )


class Resume(InitConfig):
    """The full state of another run, continued in a new directory; in its own a run is resumed without."""

    kind: Literal["resume"] = "resume"
    run: Url | Path
    """Run directory, or its URL, to continue in a new directory."""

    def initialize(self, network: Network) -> InitReport:  # noqa: ARG002 - the trainer loads more than weights
        return InitReport(kind=self.kind, source=f"resume: the newest checkpoint of {self.run}")


class Finetune(InitConfig):
    """A network trained before, for these classes or others; also another project's, if it is known here."""

    kind: Literal["finetune"] = "finetune"
    checkpoint: Path
    """Run directory or weight file to start from."""
    exclude: Names = ()
    """Patterns of tensor names to leave out."""
    rename: dict[str, str] = Field(default_factory=dict)
    """Prefixes in the file, and what they are called here."""

    def require_source(self) -> None:
        read_weights(find_weights(self.checkpoint, which="best"))

    def initialize(self, network: Network) -> InitReport:
        weights = read_weights(find_weights(self.checkpoint, which="best"))
        state = self._renamed(weights, network)
        excluded = matching(state, self.exclude, "init.exclude")
        return load_network(network, weights, state, kind=self.kind, excluded=excluded)

    def _renamed(self, weights: Weights, network: Network) -> State:
        state = network.convert_foreign(dict(weights.state))
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


def load_network(
    network: Network, weights: Weights, state: State, *, kind: str, excluded: Set[str] = frozenset()
) -> InitReport:
    """Load a complete network: all tensors of `state` (of `weights`, under the names here) that fit and are
    not excluded. Rows of classes and characters are found by their names.
    """
    excluded = excluded | set(network.not_transferred)
    offered = {name: value for name, value in state.items() if name not in excluded}
    facts = (weights.meta or {}).get("facts", {})
    old_classes, encoding = tuple(facts.get("classes", network.classes)), facts.get("encoding", {})
    tokens = _token_rows(network, offered, encoding)
    # Shared rows (the background's) and those of classes known by name are kept.
    rows = _remade(network, offered, network.class_tensors(), old_classes, network.classes) | tokens
    wanted = network.state_dict()
    same = {n: t for n, t in offered.items() if n in wanted and _fits(t, wanted[n]) and n not in rows}
    loaded = _without_counters(same)
    if not loaded:
        raise ModelError(
            f"{weights.source}: none of its tensors fits this network",
            advice=f"its first is {_describe(state)}; the network's is {_describe(wanted)}",
        )
    used = same | rows
    network.load_state_dict(used, strict=False)
    return InitReport(
        kind=kind,
        source=weights.source,
        how="by name",
        loaded=loaded,
        remade=tuple(rows),
        left_out=tuple(name for name in _without_counters(state) if name not in used),
        missing=tuple(name for name in _without_counters(wanted) if name not in used),
        kept_classes=tuple(name for name in network.classes if name in old_classes) if rows else (),
        kept_characters="".join(c for c in network.encoding["alphabet"] if c in encoding["alphabet"])
        if tokens
        else "",
    )


def matching(names: Sequence[str] | State, patterns: Sequence[str], setting: str) -> set[str]:
    """Return the names that any pattern matches; raise `UsageError` for a pattern that matches none."""
    matched: set[str] = set()
    for pattern in patterns:
        hits = {name for name in names if fnmatchcase(name, pattern)}
        if not hits:
            raise UsageError(
                f"{setting}: {pattern!r} matches no parameter",
                advice=f"names look like {', '.join(list(names)[:3])}",
            )
        matched |= hits
    return matched


RowNames = tuple[str | int, ...]
"""The names of rows; numbers are those of rows that every data set has."""


def _token_rows(network: Network, offered: State, old_encoding: Mapping[str, Any]) -> State:
    """Return the tensors with a row for each character, with the rows of known characters from `offered`."""
    if not network.token_tensors() or "alphabet" not in old_encoding:
        return {}
    meanings = (old_encoding, network.encoding)
    old, new = ((*range(encoding["unknown"] + 1), *encoding["alphabet"]) for encoding in meanings)
    return _remade(network, offered, dict.fromkeys(network.token_tensors(), ClassRows()), old, new)


def _remade(
    network: Network, offered: State, tensors: Mapping[str, ClassRows], old: RowNames, new: RowNames
) -> State:
    """Copy the rows of all classes (or characters) that `old` and `new` share from `offered` into fresh
    tensors. The other rows keep their random start. Empty if the names are the same.
    """
    if old == new:
        return {}
    state = network.state_dict()
    remade: State = {}
    for name, rows in tensors.items():
        expected = (rows.count(len(old)), *state[name].shape[1:])
        if name not in offered or offered[name].shape != expected:
            continue
        old_rows = {row_name: row for row, row_name in enumerate((*range(rows.shared), *old))}
        new_rows = {row_name: row for row, row_name in enumerate((*range(rows.shared), *new))}
        kept = [row_name for row_name in new_rows if row_name in old_rows]
        source = offered[name].reshape(rows.blocks, len(old_rows), -1).to(state[name].dtype)
        target = state[name].clone().reshape(rows.blocks, len(new_rows), -1)
        target[:, [new_rows[row] for row in kept]] = source[:, [old_rows[row] for row in kept]]
        remade[name] = target.reshape(state[name].shape)
    return remade


def _floats(network: Network) -> dict[str, Tensor]:
    return {name: t for name, t in network.state_dict().items() if torch.is_floating_point(t)}


def _fits(value: Tensor, wanted: Tensor) -> bool:
    """Return whether a tensor of a file can take the place of `wanted`: floats may be of another precision,
    integers and booleans must be of the same type.
    """
    are_floats = value.is_floating_point() and wanted.is_floating_point()
    return value.shape == wanted.shape and (are_floats or value.dtype == wanted.dtype)


def _without_counters(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names without those of the counters of BatchNorms, which not every file has."""
    return tuple(name for name in names if not name.endswith("num_batches_tracked"))


def _describe(tensors: dict[str, Tensor]) -> str:
    name, value = next(iter(tensors.items()))
    return f"{name} {tuple(value.shape)}"
