"""Gradients of all clones added up while backward still runs.

torch's DistributedDataParallel averages, wants every replica to go backward in every micro-batch, and is
built for a fixed set of parameters that are all used. Here gradients are summed, a replica may have no
sample for a micro-batch, layers thaw in the middle of a run, and what no replica uses has no gradient
(docs/decisions/0014).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from boxcrew.deploy.strategies._gradient_sums import GradientSum, PendingSum
from boxcrew.plan.cost import BUCKET_BYTES

LAG = 2  # buckets that leave before an earlier one is waited for, so that it has arrived by then


class _Bucket:
    """Gradients that are sent together: rows of one buffer, and a view of each row for each parameter."""

    def __init__(self, parameters: Sequence[nn.Parameter], sums: GradientSum) -> None:
        self.parameters, sizes = parameters, [parameter.numel() for parameter in parameters]
        like, length = parameters[0], sums.padded(sum(sizes))
        self.rows = torch.zeros(sums.num_rows, length, dtype=like.dtype, device=like.device)
        self.views = [_views(row, parameters, sizes) for row in self.rows]
        self.missing = len(parameters)  # gradients of the last clone that are not there yet


def _views(row: Tensor, parameters: Sequence[nn.Parameter], sizes: Sequence[int]) -> list[Tensor]:
    """Return a view for each parameter, laid out like it: updates on two layouts would be slower."""
    pieces = zip(parameters, torch.split(row[: sum(sizes)], list(sizes)), strict=True)
    return [piece.as_strided(parameter.shape, parameter.stride()) for parameter, piece in pieces]


class GradientReducer:
    """The sum of the gradients of a fixed set of parameters over the clones of all replicas. Buckets are sent
    in the order in which backward reaches their parameters, which is the same on all replicas.

    Every clone of this replica calls `store`, but the last, which may call `begin`, and then `send_rest`.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], sums: GradientSum) -> None:
        self.parameters = parameters
        self._sums = sums
        self._buckets = [_Bucket(packed, sums) for packed in _packed(list(reversed(parameters)))]
        self._bucket_of = {p: bucket for bucket in self._buckets for p in bucket.parameters}
        self._pending: list[PendingSum] = []  # of the first buckets, which are sent
        self._clone = 0  # the index of the clone, among this replica's, that computes now
        self._used: list[list[float]] = [[]]  # for each of these clones, of the buckets that are stored
        self._watching = False
        self._hooks = [
            p.register_post_accumulate_grad_hook(self._arrived)  # type: ignore[no-untyped-call]
            for p in parameters
        ]
        self.sent_bytes = 0  # in the last step
        self.num_early = 0  # buckets sent in the last step while backward still ran

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def store(self) -> None:
        """Take the gradients of a clone; the next one begins without any."""
        for bucket in self._buckets:
            self._take(bucket)
        self._clone += 1
        self._used.append([])

    def begin(self) -> None:
        """Send buckets from now on as soon as they are full: the last clone's last micro-batch begins."""
        self._watching = True

    def send_rest(self) -> None:
        """Send the buckets that have not been sent. Nothing else may be sent before: all messages must leave
        in the same order on all replicas, and how many buckets left early differs.
        """
        self._watching = False
        self.num_early = len(self._pending)
        while len(self._pending) < len(self._buckets):
            self._send_next()
        for pending in self._pending[-LAG:]:
            pending.go_on()

    def abandon(self) -> None:
        """Wait for all sums, and forget them: the step has failed before `finish`."""
        for pending in self._pending:
            pending.finish()
        self._reset()

    def finish(self) -> None:
        """Wait for all sums, and make them the parameters' gradients."""
        self.abandon()
        for bucket in self._buckets:
            for parameter, view in zip(bucket.parameters, bucket.views[0], strict=True):
                parameter.grad = view

    def used(self) -> list[list[float]]:
        """Return, before `finish`, for each clone 1 for each parameter that it has a gradient for, else 0."""
        return self._used

    def clear_unused(self, used: Sequence[float]) -> None:
        """Clear, after `finish`, the gradients that no clone had, by the sums of `used`."""
        for parameter, count in zip(self._bucket_of, used, strict=True):
            if not count:
                parameter.grad = None

    def _reset(self) -> None:
        self._watching, self._pending = False, []
        self._clone, self._used = 0, [[]]
        for bucket in self._buckets:
            bucket.missing = len(bucket.parameters)

    def _arrived(self, parameter: Tensor) -> None:
        if not self._watching:
            return
        assert isinstance(parameter, nn.Parameter)
        self._bucket_of[parameter].missing -= 1
        while len(self._pending) < len(self._buckets) and not self._buckets[len(self._pending)].missing:
            self._send_next()

    @torch.no_grad()
    def _take(self, bucket: _Bucket) -> None:
        """Move the gradients of the clone that computes into its row of the bucket, or add them to it."""
        row = self._sums.row_of(self._clone)
        is_first = self._clone == 0 or row > 0
        for parameter, view in zip(bucket.parameters, bucket.views[row], strict=True):
            self._used[-1].append(float(parameter.grad is not None))
            if parameter.grad is None:
                # Zeros of another replica would be added to it too, which makes +0 of -0.
                _ = view.zero_() if is_first else view.add_(0.0)
            else:
                _ = view.copy_(parameter.grad) if is_first else view.add_(parameter.grad)
            parameter.grad = None

    def _send_next(self) -> None:
        index = len(self._pending)
        bucket = self._buckets[index]
        self._take(bucket)
        self.sent_bytes = bucket.rows.nbytes + (self.sent_bytes if index else 0)
        self._pending.append(self._sums.begin(bucket.rows))
        if index >= LAG:
            self._pending[index - LAG].go_on()


def _packed(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Return the parameters of each bucket, in order. A bias is not sent alone before large weights."""
    packed: list[list[nn.Parameter]] = []
    filled = 0
    for parameter in parameters:
        full = filled + parameter.nbytes > BUCKET_BYTES and filled >= BUCKET_BYTES // 8
        if not packed or packed[-1][0].dtype != parameter.dtype or full:
            packed.append([])
            filled = 0
        packed[-1].append(parameter)
        filled += parameter.nbytes
    return packed
