"""Results on the meta device are those that torch itself has."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from boxcrew.core.torch_tools.dispatch import OperatorMode, tensors_in
from boxcrew.detectors.ssdlite import SsdLite, SsdLiteConfig
from boxcrew.tasks.cost import meta_results
from boxcrew.tasks.cost.estimate import trace_workload
from boxcrew.tasks.cost.meta_results import RESULTS, meta_result
from boxcrew.tasks.detection import DetectionTask
from boxcrew.tasks.detection_inputs import largest_batch
from boxcrew.testing.detectors import BACKBONE


class Compared(OperatorMode):
    """Compares what there is a shortcut for with torch's own results."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in RESULTS:
            self.seen.add(func)
            quick, own = meta_result(func, args, kwargs or {}), func(*args, **(kwargs or {}))
            assert layouts(quick) == layouts(own), func
            return own
        return func(*args, **(kwargs or {}))


def layouts(result: Any) -> list[Any]:
    parts = result if isinstance(result, tuple) else (result,)
    return [None if part is None else (part.shape, part.stride(), part.dtype, part.device) for part in parts]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("affine", [True, False])
def test_shapes_strides_and_types(training: bool, layout: torch.memory_format, affine: bool) -> None:
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8, affine=affine),
        nn.ReLU6(inplace=True),
        nn.Hardswish(),
        nn.ReLU(),
        nn.Conv2d(8, 8, 1),
        nn.Hardswish(inplace=True),
        nn.LeakyReLU(0.1, inplace=True),
    )
    bare = layers.train(training).to("meta").to(memory_format=layout)
    inputs = torch.empty(2, 3, 9, 7, device="meta").to(memory_format=layout)
    with Compared() as compared:
        bare(inputs).sum().backward()
    assert compared.seen == RESULTS.keys()


def test_what_works_in_place_gives_the_same_tensor() -> None:
    maps = torch.empty(2, 3, device="meta")
    assert meta_result(torch.ops.aten.hardtanh_.default, (maps, 0.0, 6.0), {}) is maps


def test_tensors_with_values_are_computed() -> None:
    result: Tensor = meta_result(torch.ops.aten.hardtanh_.default, (torch.tensor([9.0]), 0.0, 6.0), {})
    assert result.tolist() == [6.0]
    assert tensors_in(result) == [result]


def test_a_workload_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = SsdLite(SsdLiteConfig(size=64, backbone=BACKBONE, neck=16), ("cup", "pot"))
    detector.backbone.body.get_submodule("blocks.1").requires_grad_(requires_grad=False)
    workloads = []
    for results in (RESULTS, {}):
        monkeypatch.setattr(meta_results, "RESULTS", results)
        examples = partial(largest_batch, canvas=(64, 64), num_objects=4)
        workloads.append(trace_workload(DetectionTask(detector), examples, slots=1, averages=False))
    assert workloads[0] == workloads[1]
