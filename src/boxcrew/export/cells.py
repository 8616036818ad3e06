"""Recurrent layers in a form that can be exported with a time axis of any length.

torch's exporter unrolls its own LSTM to the length it was traced with. Here each layer is one operator, which
`operators` translates to that of ONNX.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

_ONE_LAYER = (True, 1, 0.0, False, False, True)
"""torch's arguments: with biases, layers, dropout, training, bidirectional, batch first."""


def with_exportable_cells(module: nn.Module) -> nn.Module:
    """Return a copy of a network whose LSTMs and GRUs are `ExportableCells`."""
    module = copy.deepcopy(module)
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.LSTM | nn.GRU):
                setattr(parent, name, ExportableCells(child))
    return module


class ExportableCells(nn.Module):
    """The layers of an LSTM or a GRU whose first axis is the batch, one after the other."""

    def __init__(self, cells: nn.LSTM | nn.GRU) -> None:
        super().__init__()
        assert cells.batch_first
        assert not cells.bidirectional
        self.cells = cells
        self.is_lstm = isinstance(cells, nn.LSTM)

    def forward(
        self, rows: Tensor, state: Tensor | tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor | tuple[Tensor, Tensor]]:
        """Map rows (B, T, F) to outputs (B, T, H) and the state after them, as the layers of torch do."""
        if state is None:
            zeros = rows.new_zeros(self.cells.num_layers, rows.shape[0], self.cells.hidden_size)
            state = (zeros, zeros) if self.is_lstm else zeros
        states = state if isinstance(state, tuple) else (state,)
        after: list[tuple[Tensor, ...]] = []
        for layer in range(self.cells.num_layers):
            weights = [
                getattr(self.cells, f"{name}_l{layer}")
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            ]
            own = [values[layer] for values in states]
            rows, *ends = (lstm_layer if self.is_lstm else gru_layer)(rows, *own, *weights)
            after.append(tuple(ends))
        stacked = [torch.stack(ends) for ends in zip(*after, strict=True)]
        return rows, (stacked[0], stacked[1]) if self.is_lstm else stacked[0]


@torch.library.custom_op("boxcrew::lstm_layer", mutates_args=())
def lstm_layer(
    rows: Tensor, hidden: Tensor, cells: Tensor, w_in: Tensor, w_own: Tensor, b_in: Tensor, b_own: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs (B, T, H), and hidden state and cells (B, H) after the last step."""
    state = [hidden[None].contiguous(), cells[None].contiguous()]
    outputs, after, cells_after = torch.lstm(rows, state, [w_in, w_own, b_in, b_own], *_ONE_LAYER)
    return outputs.clone(), after[0].clone(), cells_after[0].clone()


@lstm_layer.register_fake
def _lstm_shapes(
    rows: Tensor, hidden: Tensor, cells: Tensor, w_in: Tensor, w_own: Tensor, b_in: Tensor, b_own: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    del w_in, w_own, b_in, b_own
    outputs = rows.new_empty(rows.shape[0], rows.shape[1], hidden.shape[1])
    return outputs, torch.empty_like(hidden), torch.empty_like(cells)


@torch.library.custom_op("boxcrew::gru_layer", mutates_args=())
def gru_layer(
    rows: Tensor, hidden: Tensor, w_in: Tensor, w_own: Tensor, b_in: Tensor, b_own: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the outputs (B, T, H), and the hidden state (B, H) after the last step."""
    outputs, after = torch.gru(rows, hidden[None].contiguous(), [w_in, w_own, b_in, b_own], *_ONE_LAYER)
    return outputs.clone(), after[0].clone()


@gru_layer.register_fake
def _gru_shapes(
    rows: Tensor, hidden: Tensor, w_in: Tensor, w_own: Tensor, b_in: Tensor, b_own: Tensor
) -> tuple[Tensor, Tensor]:
    del w_in, w_own, b_in, b_own
    return rows.new_empty(rows.shape[0], rows.shape[1], hidden.shape[1]), torch.empty_like(hidden)
