"""Recurrent networks: a classifier of sequences, and a language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.types import PADDING
from boxcrew.nets.layers import eval_mode

State = Tensor | tuple[Tensor, Tensor]
"""The state of a recurrent layer: the outputs of a GRU; the outputs and cells of an LSTM."""


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The settings of a network's recurrent layers."""

    kind: Literal["lstm", "gru"] = "lstm"
    hidden: int = 128
    layers: int = 1
    dropout: float = 0.0  # between layers, and after the last

    def build(self, num_inputs: int) -> nn.LSTM | nn.GRU:
        kind: type[nn.LSTM | nn.GRU] = nn.LSTM if self.kind == "lstm" else nn.GRU
        between = self.dropout if self.layers > 1 else 0.0
        return kind(num_inputs, self.hidden, self.layers, dropout=between, batch_first=True)


class SequenceClassifier(nn.Module):
    """A classifier of sequences by their last step together with the mean of all steps.

    With `bidirectional` a second stack reads every sequence from its end. Padding comes after the real steps,
    in both directions, and changes nothing.
    """

    def __init__(
        self,
        num_inputs: int,
        num_classes: int,
        cells: Cells,
        *,
        num_tokens: int | None = None,
        bidirectional: bool = False,
    ) -> None:
        """Build it for rows of `num_inputs` values, or `num_tokens` tokens embedded into as many values."""
        super().__init__()
        self.embedding = (
            None if num_tokens is None else nn.Embedding(num_tokens, num_inputs, padding_idx=PADDING)
        )
        self.onward = cells.build(num_inputs)
        self.back = cells.build(num_inputs) if bidirectional else None
        self.dropout = nn.Dropout(cells.dropout)
        self.head = nn.Linear((4 if bidirectional else 2) * cells.hidden, num_classes)

    def features(self, inputs: Tensor) -> Tensor:
        """Map rows (B, T, F) of about unit size, or tokens int64 (B, T), to (B, 2 or 4 * hidden)."""
        if self.embedding is None:
            rows, lengths = inputs, inputs.new_full((inputs.shape[0],), inputs.shape[1], dtype=torch.int64)
        else:
            rows, lengths = self.embedding(inputs), lengths_of(inputs)
        from_start = _summary(self.onward(rows)[0], lengths)
        if self.back is None:
            return from_start
        from_end = _summary(self.back(_reversed(rows, lengths))[0], lengths)
        return torch.cat((from_start, from_end), dim=1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map rows (B, T, F) of about unit size, or tokens int64 (B, T), to scores before softmax (B, C)."""
        scores: Tensor = self.head(self.dropout(self.features(inputs)))
        return scores


def lengths_of(tokens: Tensor) -> Tensor:
    """Return (B,), the number of steps up to the last that is not padding; at least 1."""
    positions = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    return (positions * (tokens != PADDING)).amax(dim=1).clamp(min=1)


def _summary(outputs: Tensor, lengths: Tensor) -> Tensor:
    """Map outputs (B, T, H) to (B, 2 * H): the last real step, and the mean of all real steps."""
    last = outputs.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, outputs.shape[2])).squeeze(1)
    is_real = torch.arange(outputs.shape[1], device=outputs.device) < lengths[:, None]
    mean = (outputs * is_real[..., None]).sum(dim=1) / lengths[:, None]
    return torch.cat((last, mean), dim=1)


def _reversed(rows: Tensor, lengths: Tensor) -> Tensor:
    """Reverse the real steps of each sequence; padding stays at the end."""
    positions = (lengths[:, None] - 1 - torch.arange(rows.shape[1], device=rows.device)) % rows.shape[1]
    return rows.gather(1, positions[..., None].expand_as(rows))


class LanguageModel(nn.Module):
    """A network that predicts each next token from those before it."""

    def __init__(self, num_tokens: int, cells: Cells, *, embedding: int = 64, tied: bool = False) -> None:
        """Build it; if `tied`, a token's score is the product with its embedding (Press and Wolf 2017), which
        needs fewer parameters than a separate output layer.
        """
        super().__init__()
        self.embedding = nn.Embedding(num_tokens, embedding)
        self.cells = cells.build(embedding)
        self.dropout = nn.Dropout(cells.dropout)
        self.is_tied = tied
        if tied:
            # Vectors of length 1: with torch's initialization, the first scores would be far apart.
            nn.init.normal_(self.embedding.weight, std=embedding**-0.5)
            self.head: nn.Module = (
                nn.Identity() if cells.hidden == embedding else nn.Linear(cells.hidden, embedding)
            )
            self.bias = nn.Parameter(torch.zeros(num_tokens))
        else:
            self.head = nn.Linear(cells.hidden, num_tokens)

    @property
    def device(self) -> torch.device:
        """The device that tokens have to be on."""
        return self.embedding.weight.device

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens int64 (B, T) to scores before softmax (B, T, num_tokens) of each next token."""
        return self.read(tokens)[0]

    def read(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Return the scores, and the state after the last token to continue from."""
        outputs, after = self.cells(self.embedding(tokens), state)
        scores: Tensor = self.head(self.dropout(outputs))
        if self.is_tied:
            # Not a second layer with the same parameter, which would be saved twice.
            scores = F.linear(scores, self.embedding.weight, self.bias)
        return scores, after

    @torch.no_grad()
    def continue_text(
        self, tokens: Tensor, num: int, *, temperature: float = 1.0, generator: torch.Generator
    ) -> Tensor:
        """Sample tokens int64 (B, num) that continue `tokens` (B, T), T at least 1.

        Never 0, which is padding or an unknown character. At temperature 0 it is always the likeliest token.
        `generator` is on the CPU, wherever the network is, so that all devices draw the same numbers.
        """
        sampled, last, state = [tokens[:, :0]], tokens, None
        with eval_mode(self):
            for _ in range(num):
                scores, state = self.read(last, state)
                last = _sample(scores[:, -1], temperature, generator)
                sampled.append(last)
        return torch.cat(sampled, dim=1)


def _sample(scores: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """Draw one token for each row of scores (B, num_tokens), as (B, 1)."""
    allowed = scores.float().clone()
    allowed[:, PADDING] = -torch.inf
    if temperature == 0:
        return allowed.argmax(dim=1, keepdim=True)
    probabilities = (allowed / temperature).softmax(dim=1).cpu()
    return probabilities.multinomial(1, generator=generator).to(scores.device)
