"""Biases of convolutions that make up for the rounding of their weights (Nagel et al. 2019).

What a layer gets is mostly positive, so that rounded weights move the mean of each of its results. By how
much follows from the mean of what it gets, and is taken off the bias.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxcrew.runtime.predictor import Array

_Floats = NDArray[np.float32]


def correct_biases(
    model: Any, inputs: Sequence[Mapping[str, Array]], *, layers: frozenset[str], levels: int
) -> None:
    """Change the biases of the named layers, whose weights are going to be rounded to `levels` steps on
    either side of 0.
    """
    helper = importlib.import_module("onnx.numpy_helper")
    values = {entry.name: entry for entry in model.graph.initializer}
    uses = Counter(name for node in model.graph.node for name in node.input)
    convs = [
        node
        for node in model.graph.node
        if node.op_type == "Conv"
        and node.name in layers
        and len(node.input) == 3  # with a bias
        and all(name in values and uses[name] == 1 for name in node.input[1:])
    ]
    means = _channel_means(model, inputs, sorted({node.input[0] for node in convs}))
    for node in convs:
        weights, bias = (helper.to_array(values[name]) for name in node.input[1:])
        moved = _moved_means(_rounding(weights, levels), means[node.input[0]])
        values[node.input[2]].CopyFrom(helper.from_array((bias - moved).astype(np.float32), node.input[2]))


def _channel_means(
    model: Any, inputs: Sequence[Mapping[str, Array]], names: Sequence[str]
) -> dict[str, _Floats]:
    """Return the mean of each channel of some results over all inputs."""
    onnx, runtime = importlib.import_module("onnx"), importlib.import_module("onnxruntime")
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    del tapped.graph.output[:]
    tapped.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    session = runtime.InferenceSession(tapped.SerializeToString(), providers=["CPUExecutionProvider"])
    rows: dict[str, list[_Floats]] = {name: [] for name in names}
    for each in inputs if names else ():
        for name, result in zip(names, session.run(list(names), each), strict=True):
            rows[name].append(result.mean(axis=(0, 2, 3)))
    return {name: np.stack(means).mean(axis=0) for name, means in rows.items()}


def _rounding(weights: _Floats, levels: int) -> _Floats:
    """Return what rounding adds to weights, with a scale for each of the channels that they make."""
    scales = np.abs(weights).max(axis=tuple(range(1, weights.ndim)), keepdims=True) / levels
    scales[scales == 0] = 1
    return np.asarray(np.round(weights / scales) * scales - weights)


def _moved_means(rounding: _Floats, means: _Floats) -> _Floats:
    """Return by how much rounding moves the mean of each channel (O,) of a convolution, in groups or not,
    whose inputs have given means (I,).
    """
    num_made, num_used = rounding.shape[:2]  # of a group
    per_group = means.reshape(-1, num_used)
    used = np.repeat(per_group, num_made // len(per_group), axis=0)  # (O, num_used)
    return np.asarray((rounding.sum(axis=tuple(range(2, rounding.ndim))) * used).sum(axis=1))
