"""What strategies have in common whose replicas have one clone each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

from torch import Tensor, nn

from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.devices import Devices
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.strategies._local import Local
from boxcrew.deploy.synced_norms import SyncedNorms
from boxcrew.plan.plan import Plan


class Piece(NamedTuple):
    """What a replica computes of one part of a step."""

    batch: Batch
    counts: bool  # else it stands for nothing: a replica must compute something that has no sample


def num_samples(pieces: Sequence[Piece]) -> int:
    return sum(len(piece.batch) for piece in pieces if piece.counts)


class OneClone(Local):
    def __init__(self, plan: Plan, devices: Devices, group: ReplicaGroup) -> None:
        super().__init__(plan, devices, group)
        self.device = devices.find(plan.replicas[group.rank].clones[0].device)

    @abstractmethod
    def compute_all(self, task: nn.Module, pieces: Sequence[Piece], phase: str) -> Losses:
        """Sums over all replicas: of the losses, and of the gradients in their parameters."""

    @property
    def needs_every_part(self) -> bool:
        """Whether all replicas must compute something in each part of a step: they meet on the way."""
        return self.synced

    @property
    def synced(self) -> bool:
        return self.plan.batch_norm == "synced" and self.group.size > 1

    def place(self, module: nn.Module) -> nn.Module:
        placed = super().place(module)
        self.broadcast(placed)
        return placed

    def add_up(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        total = self.compute_all(task, self._pieces(batch), phase)
        if batch.is_blank and not self.synced:
            self.put_buffers_back(task)
        return total

    def compute_piece(self, task: nn.Module, piece: Piece, phase: str) -> Losses:
        with SyncedNorms(self._sum, counts=piece.counts) if self.synced else nullcontext():
            return self.compute(task, piece.batch, phase, self.device, counts=piece.counts)

    def _sum(self, value: Tensor) -> Tensor:
        total = value.clone()
        self.group.all_reduce(total)
        return total

    def _pieces(self, batch: Batch) -> list[Piece]:
        """Fewer samples than planned where some could not be read. At least one piece."""
        sizes = [sum(counts) for counts in self.plan.replica_split(self.group.rank, len(batch))]
        if batch.is_blank:
            return [Piece(batch, counts=False)] * (len(sizes) if self.needs_every_part else 1)
        parts = iter(batch.split(sizes))
        stand_in = batch.select([0, 0])  # a BatchNorm may need two
        pieces = [
            Piece(next(parts), counts=True) if size else Piece(stand_in, counts=False) for size in sizes
        ]
        return [piece for piece in pieces if piece.counts or self.needs_every_part]
