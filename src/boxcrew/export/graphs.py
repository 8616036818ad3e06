"""The networks that exported files contain: those of torch, with what comes right before and after them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from boxcrew.core.errors import ExportError
from boxcrew.data.examples.alphabet import num_tokens
from boxcrew.detectors import DetectorNet
from boxcrew.export.cells import with_exportable_cells
from boxcrew.nets.network import Network
from boxcrew.nets.recurrent import LanguageModel, State
from boxcrew.runtime.exported import EXTRA, IMAGES, THRESHOLD
from boxcrew.tasks.exported import INPUT, STATE
from boxcrew.tasks.facts import ExampleFacts
from boxcrew.tasks.gan import GanConfig
from boxcrew.tasks.sequence import LanguageNet
from boxcrew.train.run.loading import Loaded

BATCH, TIME, REGIONS = "batch", "time", "num_regions"
"""The names of axes of any length."""

_TRACED = {BATCH: 2, TIME: 17, REGIONS: 24}
_SINGLE = {BATCH: 1}
_OTHERS = ({BATCH: 1, TIME: 1, REGIONS: 1}, {BATCH: 3, TIME: 29, REGIONS: 31})
"""The lengths that a network is traced with, and others that its file is tried with."""

Lengths = Mapping[str, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class ExportGraph:
    """A network to export, on the CPU and in evaluation mode."""

    module: nn.Module  # takes the inputs in their order
    axes: Mapping[str, Mapping[int, str]]  # of each input, those of any length, with their names
    outputs: tuple[str, ...]
    make_inputs: Callable[[Lengths], tuple[Tensor, ...]]  # random ones of given lengths

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(self.axes)

    def traced_inputs(self) -> tuple[Tensor, ...]:
        return self.make_inputs(_TRACED)

    def single_inputs(self, format: str) -> tuple[Tensor, ...]:
        """Return inputs of one sample, for a format without axes of any length; `ExportError` if the network
        has others than that of samples.
        """
        others = {name for axes in self.axes.values() for name in axes.values()} - {BATCH}
        if others or THRESHOLD in self.axes:
            what = (
                f"inputs of any length ({', '.join(sorted(others))})" if others else "a threshold (nms=true)"
            )
            problem = f"format={format}: its files cannot have {what}"
            raise ExportError(problem, advice="format=onnx can")
        return self.make_inputs(_SINGLE)

    def other_inputs(self) -> tuple[tuple[Tensor, ...], ...]:
        """Return inputs of other lengths than those of tracing, among them single samples."""
        return tuple(map(self.make_inputs, _OTHERS))


def graph_of(loaded: Loaded, *, with_nms: bool) -> ExportGraph:
    """Return the network of a trained task as it is exported; `ExportError` if it cannot be."""
    network = loaded.task.network
    if isinstance(network, DetectorNet):
        return _detector_graph(network, loaded.path, with_nms=with_nms)
    if with_nms:
        raise ExportError(f"nms=true: {loaded.path} is not a detector", advice="leave nms= out")
    if isinstance(network, LanguageNet):
        return _language_graph(network)
    if isinstance(loaded.config, GanConfig):
        return _generator_graph(network, loaded.config)
    return _classifier_graph(network, loaded.facts)


class DetectorModule(nn.Module):
    """A detector with the steps after its network, up to its candidates or its detections."""

    def __init__(self, detector: DetectorNet, size: tuple[int, int], *, with_nms: bool) -> None:
        super().__init__()
        self.detector, self.size, self.with_nms = detector, size, with_nms

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        if not self.with_nms:
            return tuple(self.detector.candidates(self.detector(*inputs), self.size))
        *images_and_regions, threshold = inputs
        candidates = self.detector.candidates(self.detector(*images_and_regions), self.size)
        padded = self.detector.suppress(candidates, score_threshold=threshold)
        return padded.boxes, padded.scores, padded.labels


def _detector_graph(detector: DetectorNet, path: Path, *, with_nms: bool) -> ExportGraph:
    if detector.not_exportable:
        raise ExportError(f"{path}: {detector.config.name} cannot be exported: {detector.not_exportable}")
    size, num_regions = detector.config.size, detector.config.num_regions
    if size.limit is not None:
        raise ExportError(
            f"detector.size={size}: a file has one size of input, and this detector takes any shape",
            advice=f"give a square, such as size={size.sides[-1]}",
        )
    side = size.largest.square

    def make_inputs(lengths: Lengths) -> tuple[Tensor, ...]:
        num = lengths[BATCH]
        images = torch.randint(0, 256, (num, 3, side, side), dtype=torch.uint8)
        inputs: list[Tensor] = [images]
        if num_regions:
            shape = (num, lengths[REGIONS])
            corners = torch.rand(*shape, 2, 2).sort(dim=2).values * (side - 2)
            corners[:, :, 1] += 2
            inputs += [corners.flatten(2), torch.ones(shape, dtype=torch.bool)]
        return (*inputs, torch.tensor([detector.config.score_threshold])) if with_nms else tuple(inputs)

    names = (IMAGES, *EXTRA) if num_regions else (IMAGES,)
    axes: dict[str, Mapping[int, str]] = {IMAGES: {0: BATCH}}
    axes |= {name: {0: BATCH, 1: REGIONS} for name in names[1:]}
    if with_nms:
        axes[THRESHOLD] = {}
    return ExportGraph(
        module=DetectorModule(detector, (side, side), with_nms=with_nms).eval(),
        axes=axes,
        outputs=("boxes", "scores", "labels"),
        make_inputs=make_inputs,
    )


class _ClassifierModule(nn.Module):
    """A classifier with the softmax that makes probabilities of its scores."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor) -> Tensor:
        probabilities: Tensor = self.network(*inputs).float().softmax(dim=1)
        return probabilities


def _classifier_graph(network: Network, facts: ExampleFacts) -> ExportGraph:
    axes = {0: BATCH, 1: TIME} if facts.kind == "tokens" else {0: BATCH}

    def make_inputs(lengths: Lengths) -> tuple[Tensor, ...]:
        num = lengths[BATCH]
        if facts.kind == "tokens":
            return (torch.randint(0, num_tokens(facts.encoding), (num, lengths[TIME])),)
        if facts.kind == "numbers":
            return (torch.randn(num, *facts.shape),)
        height, width, channels = facts.image_shape
        return (torch.randint(0, 256, (num, channels, height, width), dtype=torch.uint8),)

    return ExportGraph(
        module=with_exportable_cells(_ClassifierModule(network)).eval(),
        axes={INPUT: axes},
        outputs=("probabilities",),
        make_inputs=make_inputs,
    )


class _GeneratorModule(nn.Module):
    """A generator with the conversion of its outputs to pixels of 0..255."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor) -> Tensor:
        images: Tensor = self.network(*inputs).float()
        return ((images + 1) * 127.5).round().clamp(0.0, 255.0).to(torch.uint8)


def _generator_graph(network: Network, config: GanConfig) -> ExportGraph:
    return ExportGraph(
        module=_GeneratorModule(network).eval(),
        axes={INPUT: {0: BATCH}},
        outputs=("images",),
        make_inputs=lambda lengths: (torch.randn(lengths[BATCH], config.latent),),
    )


class _LanguageModule(nn.Module):
    """A language model that gets and gives its state, so that a text can be continued bit by bit."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        tokens, *states = inputs
        state: State = (states[0], states[1]) if len(states) > 1 else states[0]
        scores, after = self.model.read(tokens, state)
        return (scores, *after) if isinstance(after, tuple) else (scores, after)


def _language_graph(network: LanguageNet) -> ExportGraph:
    model = network.model
    cells = model.cells
    num_states = 2 if isinstance(cells, nn.LSTM) else 1

    def make_inputs(lengths: Lengths) -> tuple[Tensor, ...]:
        tokens = torch.randint(1, num_tokens(network.encoding), (lengths[BATCH], lengths[TIME]))
        state = (cells.num_layers, lengths[BATCH], cells.hidden_size)
        return (tokens, *(torch.randn(state) for _ in range(num_states)))

    states = STATE[:num_states]
    return ExportGraph(
        module=with_exportable_cells(_LanguageModule(model)).eval(),
        axes={INPUT: {0: BATCH, 1: TIME}, **{name: {1: BATCH} for name in states}},
        outputs=("scores", *(f"{name}_after" for name in states)),
        make_inputs=make_inputs,
    )
