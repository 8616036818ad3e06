"""Small ONNX networks of layers in a row, and inputs for them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from boxcrew.runtime.exported import IMAGES
from boxcrew.runtime.predictor import Array

SIDE, WIDTH = 16, 32


def network(*layers: str) -> onnx.ModelProto:
    """Return a chain of layers with random weights; each node has the name and number of its operator."""
    rng = np.random.default_rng(0)
    nodes, constants = [], []
    result, channels = IMAGES, 3
    for i, layer in enumerate(layers):
        inputs = [result]
        if layer == "Conv":
            weights = rng.standard_normal((WIDTH, channels, 1, 1)) / np.sqrt(channels)
            values = {f"w{i}": weights, f"b{i}": rng.standard_normal(WIDTH)}
            constants += [numpy_helper.from_array(each.astype(np.float32), k) for k, each in values.items()]
            inputs += values
            channels = WIDTH
        if layer == "ReduceMean":
            constants.append(numpy_helper.from_array(np.array([2, 3]), f"axes{i}"))
            inputs.append(f"axes{i}")
        nodes.append(helper.make_node(layer, inputs, [f"r{i}"], name=f"{layer}{i}"))
        result = f"r{i}"
    ends = [(IMAGES, ["batch", 3, SIDE, SIDE]), (result, ["batch", WIDTH, None, None])]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends]
    graph = helper.make_graph(nodes, "chain", info[:1], info[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def photos(count: int = 8) -> list[dict[str, Array]]:
    rng = np.random.default_rng(1)
    return [{IMAGES: rng.uniform(0, 2, (1, 3, SIDE, SIDE)).astype(np.float32)} for _ in range(count)]


DEEP = ("Conv", "Relu") * 6 + ("Conv",)
