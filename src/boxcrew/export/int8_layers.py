"""The choice of the layers of an ONNX graph that compute with integers of 8 bits."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

WITH_WEIGHTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""The operators with weights, which take nearly all of the time."""

_FLOAT_ONLY = frozenset({"HardSwish", "HardSigmoid", "Gelu", "Elu", "Mish", "Tanh", "Erf", "Softplus"})
"""Activations that no engine computes with integers."""


def pool_means(graph: Any) -> None:
    """Write means over height and width as pooling, which engines have for integers too."""
    helper = importlib.import_module("onnx.numpy_helper")
    constants = {values.name: values for values in graph.initializer}
    for node in graph.node:
        if node.op_type != "ReduceMean" or len(node.input) < 2 or node.input[1] not in constants:
            continue
        axes = helper.to_array(constants[node.input[1]]).tolist()
        options = {option.name: option.i for option in node.attribute}
        if sorted(axes) in ([2, 3], [-2, -1]) and options.get("keepdims", 1):
            node.op_type = "GlobalAveragePool"
            del node.input[1:]
            del node.attribute[:]
    used = {name for node in graph.node for name in node.input}
    for values in constants.values():
        if values.name not in used:
            graph.initializer.remove(values)


def float_nodes(graph: Any) -> set[str]:
    """Return the names of the nodes that keep floats:

    - what comes after the last layer with weights, such as the decoding of boxes;
    - the first layer: it is small, and its error passes through all others;
    - layers before an activation that has no integers: converted there and back, they gain no time, and
      networks with such activations have channels of unlike ranges, which one scale does not fit;
    - what only passes on floats, and single layers between floats.
    """
    kept = _after_the_last_weights(graph)
    kept.update(node.name for node in graph.node if node.op_type in _FLOAT_ONLY)
    unsuitable = {name for node in graph.node if node.op_type in _FLOAT_ONLY for name in node.input}
    layers = [node for node in graph.node if node.op_type in WITH_WEIGHTS]
    kept.update(node.name for node in layers if unsuitable.intersection(node.output))
    from_inputs = _without_weights_before(graph)
    kept.update(node.name for node in layers if from_inputs.intersection(node.input))
    _add_what_passes_on(graph, kept)
    for region in _regions(graph, kept):
        if sum(node.op_type in WITH_WEIGHTS for node in region) <= 1:
            kept.update(node.name for node in region)
    return kept


def _after_the_last_weights(graph: Any) -> set[str]:
    """Return the names of the nodes whose results no layer with weights uses."""
    needed: set[str] = set()
    after: set[str] = set()
    for node in reversed(graph.node):  # nodes are sorted: those that use a result come after it
        if node.op_type in WITH_WEIGHTS or needed.intersection(node.output):
            needed.update(node.input)
        else:
            after.add(node.name)
    return after


def _without_weights_before(graph: Any) -> set[str]:
    """Return the inputs, and the results that are made of them without a layer with weights."""
    made = {entry.name for entry in graph.input}
    for node in graph.node:
        if node.op_type not in WITH_WEIGHTS and made.intersection(node.input):
            made.update(node.output)
    return made


def _add_what_passes_on(graph: Any, kept: set[str]) -> None:
    """Add the nodes without weights that use a result in floats."""
    floats = {entry.name for entry in graph.input}
    for node in graph.node:
        if node.op_type not in WITH_WEIGHTS and floats.intersection(node.input):
            kept.add(node.name)
        if node.name in kept:
            floats.update(node.output)


def _regions(graph: Any, kept: Iterable[str]) -> list[list[Any]]:
    """Return the connected parts of the graph without the nodes that keep floats."""
    outside = set(kept)
    parts: list[tuple[set[str], list[Any]]] = []  # the results inside, and the nodes
    for node in graph.node:
        if node.name in outside:
            continue
        results, nodes = set(node.output), [node]
        for part in [part for part in parts if part[0].intersection(node.input)]:
            results |= part[0]
            nodes = part[1] + nodes
            parts.remove(part)
        parts.append((results, nodes))
    return [nodes for _, nodes in parts]
