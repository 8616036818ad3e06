"""Translations to ONNX of operators that torch's exporter does not know."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from boxcrew.export import cells as _cells  # noqa: F401  registers its operators
from boxcrew.nets import static as _static  # noqa: F401  registers its operator

OPSET = 20

_FLOAT = 1  # ONNX's number of the type
_MAXIMUM = 2  # the mode of bags of which each gives its maximum
_DROPPED = -1.0  # in place of what is not chosen; places are at least 1
_LEAST = -0.5  # between the two


def translations() -> dict[Any, Callable[..., Any]]:
    """Return the functions that write these operators, for torch's exporter."""
    import torchvision.ops  # noqa: F401  registers its operators

    ops = torch.ops
    return {
        ops.boxcrew.nms_top_k.default: _nms_top_k,
        ops.boxcrew.lstm_layer.default: _lstm_layer,
        ops.boxcrew.gru_layer.default: _gru_layer,
        ops.torchvision.roi_pool.default: _roi_pool,
        ops.aten.embedding_bag.padding_idx: _embedding_bag,
        ops.aten._embedding_bag.default: _embedding_bag,
        ops.aten._embedding_bag_forward_only.default: _embedding_bag,
    }


def _onnx() -> Any:
    return importlib.import_module("onnxscript").opset20


def _nms_top_k(
    boxes: Any, ranks: Any, groups: Any, valid: Any, num_groups: int, iou: float, count: int
) -> Any:
    """Write `nets.static.nms_top_k`: suppression in each group, then the best of what is left."""
    op = _onnx()
    scores = _places(op, ranks)
    numbers = op.Constant(value_ints=list(range(num_groups)))
    is_own = op.Equal(op.Unsqueeze(groups, [1]), op.Unsqueeze(numbers, [0, 2]))  # (B, G, N)
    possible = op.And(is_own, op.Unsqueeze(valid, [1]))
    by_group = op.Where(possible, op.Unsqueeze(scores, [1]), op.Constant(value_float=_DROPPED))
    limits = [
        op.Constant(value_ints=[count]),
        op.Constant(value_floats=[iou]),
        op.Constant(value_floats=[_LEAST]),
    ]
    selected = op.NonMaxSuppression(boxes, by_group, *limits)  # rows of image, group, box
    chosen = op.Gather(selected, op.Constant(value_ints=[0, 2]), axis=1)
    none = op.Expand(op.Constant(value_float=_DROPPED), op.Shape(scores))
    kept = op.ScatterND(none, chosen, op.GatherND(scores, chosen))
    # Padded, so that there are `count` of them.
    kept = op.Pad(kept, op.Constant(value_ints=[0, 0, 0, count]), op.Constant(value_float=_DROPPED))
    best, index = op.TopK(kept, op.Constant(value_ints=[count]), axis=1)
    is_real = op.Greater(best, op.Constant(value_float=_LEAST))
    return op.Where(is_real, index, op.Constant(value_int=0)), is_real


def _places(op: Any, ranks: Any) -> Any:
    """Return numbers (B, N) of which no two are the same: N for the highest rank, down to 1; the first of
    equal ones gets more.
    """
    zero, one, step = (op.Constant(value_int=number) for number in (0, 1, -1))
    shape = op.Shape(ranks)
    num = op.Gather(shape, one)
    descending = op.Range(num, zero, step)
    keys = op.Add(op.Mul(ranks, num), descending)
    _, order = op.TopK(keys, op.Unsqueeze(num, [0]), axis=1)
    places = op.Expand(descending, shape)
    return op.Cast(op.ScatterElements(places, order, places, axis=1), to=_FLOAT)


def _roi_pool(features: Any, rows: Any, spatial_scale: float, pooled_height: int, pooled_width: int) -> Any:
    op = _onnx()
    pooled = op.MaxRoiPool(
        features, rows, pooled_shape=[pooled_height, pooled_width], spatial_scale=spatial_scale
    )
    return pooled, pooled  # the second output, where each maximum was, is not used


def _embedding_bag(  # noqa: PLR0913, PLR0917  the operator's own arguments
    table: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,  # noqa: FBT001, FBT002
    mode: int = 0,
    sparse: bool = False,  # noqa: FBT001, FBT002
    per_sample_weights: Any = None,
    include_last_offset: bool = False,  # noqa: FBT001, FBT002
    padding_idx: int = -1,
) -> Any:
    """Write sums or maxima of rows of a table, for bags that all have the same size, as ours do."""
    del scale_grad_by_freq, sparse, include_last_offset, padding_idx
    op = _onnx()
    rows = op.Gather(table, indices, axis=0)
    if per_sample_weights is not None:
        rows = op.Mul(rows, op.Unsqueeze(per_sample_weights, [1]))
    width = op.Shape(table, start=1, end=2)
    bags = op.Reshape(rows, op.Concat(op.Shape(offsets), op.Constant(value_ints=[-1]), width, axis=0))
    reduce = op.ReduceMax if mode == _MAXIMUM else op.ReduceSum
    unused = (op.Identity(offsets) for _ in range(3))  # results for a backward pass
    return reduce(bags, op.Constant(value_ints=[1]), keepdims=0), *unused


def _gates(op: Any, weights: Any, order: tuple[int, ...]) -> Any:
    """Return the rows of each gate in another order, with an axis for the one direction before them."""
    parts = op.Split(weights, axis=0, num_outputs=len(order))
    return op.Unsqueeze(op.Concat(*(parts[gate] for gate in order), axis=0), [0])


def _recurrent(op: Any, weights: tuple[Any, ...], order: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Return the weights of the inputs, of the state, and all biases, as ONNX wants them."""
    w_in, w_own, b_in, b_own = (_gates(op, values, order) for values in weights)
    return w_in, w_own, op.Concat(b_in, b_own, axis=1)


def _lstm_layer(rows: Any, hidden: Any, cells: Any, w_in: Any, w_own: Any, b_in: Any, b_own: Any) -> Any:
    op = _onnx()
    # torch: input, forget, cell, output; ONNX: input, output, forget, cell.
    layers = _recurrent(op, (w_in, w_own, b_in, b_own), (0, 3, 1, 2))
    steps = op.Transpose(rows, perm=[1, 0, 2])
    size = _width(w_own)
    outputs, after, cells_after = op.LSTM(
        steps, *layers, None, op.Unsqueeze(hidden, [0]), op.Unsqueeze(cells, [0]), hidden_size=size
    )
    return _batch_first(op, outputs), op.Squeeze(after, [0]), op.Squeeze(cells_after, [0])


def _gru_layer(rows: Any, hidden: Any, w_in: Any, w_own: Any, b_in: Any, b_own: Any) -> Any:
    op = _onnx()
    # torch: reset, update, new; ONNX: update, reset, new.
    layers = _recurrent(op, (w_in, w_own, b_in, b_own), (1, 0, 2))
    steps = op.Transpose(rows, perm=[1, 0, 2])
    outputs, after = op.GRU(
        steps,
        *layers,
        None,
        op.Unsqueeze(hidden, [0]),
        hidden_size=_width(w_own),
        linear_before_reset=1,
    )
    return _batch_first(op, outputs), op.Squeeze(after, [0])


def _width(w_own: Any) -> int:
    return int(w_own.shape[1])


def _batch_first(op: Any, outputs: Any) -> Any:
    """Return outputs (T, 1, B, H) as (B, T, H)."""
    return op.Transpose(op.Squeeze(outputs, [1]), perm=[1, 0, 2])
