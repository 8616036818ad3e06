"""Tests which layers of a network are computed with integers, and what rounding costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

from boxcrew.core.errors import ExportError
from boxcrew.export.int8 import quantized
from boxcrew.export.int8_layers import float_nodes, pool_means
from tests.helpers.onnx_chains import DEEP, network, photos


def results(model: bytes) -> np.ndarray[Any, Any]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, each)[0] for each in photos()])


def test_layers_that_gain_nothing_keep_floats() -> None:
    chain = ("Conv", "Relu", "Conv", "Relu", "Conv", "Conv", "HardSwish", "Conv", "Softmax")
    graph = network(*chain).graph
    every = {node.name for node in graph.node}
    assert every - float_nodes(graph) == {"Conv2", "Relu3", "Conv4"}


def test_files_have_integers_where_layers_suit_them() -> None:
    model = network("Conv", "HardSwish", *DEEP, "HardSwish", "Conv", "Sigmoid")
    small = onnx.load_from_string(quantized(model.SerializeToString(), photos()))
    integers = [entry for entry in small.graph.initializer if entry.data_type == TensorProto.INT8]
    weights = [entry for entry in integers if len(entry.dims) == 4]
    assert len(weights) == 6  # not the first, nor the two beside the last HardSwish


def test_biases_make_up_for_rounded_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network(*DEEP).SerializeToString()
    floats = results(model)

    def shift() -> float:
        """Return how far the means of channels move, typically."""
        moved = (results(quantized(model, photos())) - floats).mean(axis=(0, 2, 3))
        return float(np.sqrt((moved**2).mean()))

    corrected = shift()
    monkeypatch.setattr("boxcrew.export.int8.correct_biases", lambda *_, **__: None)
    assert corrected < 0.6 * shift()


def test_biases_that_layers_share_stay() -> None:
    model = network(*DEEP)
    model.graph.node[4].input[1:] = model.graph.node[2].input[1:]
    del model.graph.initializer[4:6]
    floats = results(model.SerializeToString())
    small = results(quantized(model.SerializeToString(), photos()))
    assert np.abs(small - floats).mean() < 0.05 * np.abs(floats).mean()


def test_means_are_pooled_the_same() -> None:
    model = network("Conv", "ReduceMean", "Conv")
    before = results(model.SerializeToString())
    pool_means(model.graph)
    assert [node.op_type for node in model.graph.node] == ["Conv", "GlobalAveragePool", "Conv"]
    onnx.checker.check_model(model)
    assert np.allclose(results(model.SerializeToString()), before, atol=1e-5)


def test_networks_without_layers_for_integers_are_refused() -> None:
    model = network("Conv", "HardSwish", "Conv", "HardSwish")
    with pytest.raises(ExportError, match="no layer of this network gains from integers"):
        quantized(model.SerializeToString(), photos())
