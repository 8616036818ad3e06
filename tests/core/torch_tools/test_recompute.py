"""Computing activations again changes nothing but the memory that a step takes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from timm.layers import DropPath
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.overrides import TorchFunctionMode

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.torch_tools.recompute import recomputing
from boxcrew.core.types import Batch, Losses
from boxcrew.detectors.ssd import Ssd, SsdConfig, Vgg16
from boxcrew.detectors.ssdlite import SsdLite, SsdLiteConfig
from boxcrew.nets.layers import conv_norm
from boxcrew.tasks.cost.estimate import CostTracker
from boxcrew.tasks.detection import DetectionTask
from tests.helpers.narrow import narrow_if_large

Loss = Callable[[nn.Module], Tensor]
Trace = Mapping[str, Tensor | None]
"""The results of a step, by name."""


def trace(module: nn.Module, loss: Loss, way: Callable[[nn.Module], AbstractContextManager[None]]) -> Trace:
    """Return the loss, gradients, buffers and random state after one step of a copy."""
    copied = copy.deepcopy(module)
    torch.manual_seed(7)
    with way(copied):
        total = loss(copied)
    total.backward()  # type: ignore[no-untyped-call]
    result: dict[str, Tensor | None] = {f"{name}.grad": p.grad for name, p in copied.named_parameters()}
    return result | dict(copied.named_buffers()) | {"loss": total.detach(), "draws": torch.get_rng_state()}


def as_ever(_: nn.Module) -> AbstractContextManager[None]:
    return nullcontext()


def require_same(module: nn.Module, loss: Loss) -> None:
    """Both ways must be equal to the bit."""
    wanted, result = trace(module, loss, as_ever), trace(module, loss, recomputing)
    assert result.keys() == wanted.keys()
    for name, value in wanted.items():
        recomputed = result[name]
        assert (value is None) == (recomputed is None), name
        assert value is None or recomputed is None or torch.equal(value, recomputed), name


def make_batch(num: int, size: int) -> Batch:
    draw = torch.Generator().manual_seed(1)
    corners = torch.rand(num, 5, 2, generator=draw) * size / 2
    sides = 8 + torch.rand(num, 5, 2, generator=draw) * size / 3
    return Batch(
        inputs=torch.randint(0, 256, (num, 3, size, size), dtype=torch.uint8, generator=draw),
        targets={
            "boxes": torch.cat((corners, corners + sides), dim=-1),
            "labels": torch.randint(0, 2, (num, 5), generator=draw),
        },
        keys=("",) * num,
    )


def ssdlite(backbone: str = "mobilenetv3_small_050", size: int = 96, neck: int = 0) -> DetectionTask:
    torch.manual_seed(0)
    return DetectionTask(SsdLite(SsdLiteConfig(size=size, backbone=backbone, neck=neck), ("cup", "pot")))


def ssd() -> DetectionTask:
    torch.manual_seed(0)
    return DetectionTask(Ssd(SsdConfig(size=300), ("cup", "pot")))


def with_drop_paths(task: DetectionTask) -> DetectionTask:
    """Blocks that now and then are left out."""
    for submodule in list(task.modules()):
        if hasattr(submodule, "drop_path"):
            submodule.drop_path = DropPath(0.5)
    return task


def of_batch(batch: Batch, precision: torch.dtype | None = None) -> Loss:
    def loss(task: nn.Module) -> Tensor:
        with torch.autocast("cpu", dtype=precision or torch.bfloat16, enabled=precision is not None):
            losses: Losses = task(batch, "train")
        return losses.total()

    return loss


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("precision", [None, torch.bfloat16])
def test_ssdlite_learns_the_same(layout: torch.memory_format, precision: torch.dtype | None) -> None:
    task = with_drop_paths(ssdlite()).to(memory_format=layout)
    batch = make_batch(3, 96).to("cpu", memory_format=layout)
    require_same(task, of_batch(batch, precision))


@pytest.mark.parametrize(
    "backbone", ["resnet18", "efficientnet_lite0", "convnext_atto", "cspresnet50", "densenet121"]
)
def test_other_backbones_learn_the_same(backbone: str) -> None:
    task = with_drop_paths(ssdlite(backbone, size=64, neck=16))
    require_same(task, of_batch(make_batch(2, 64)))


def test_ssd300_learns_the_same() -> None:
    with narrow_if_large(SsdConfig()):
        task = ssd()
    require_same(task, of_batch(make_batch(1, 300)))


@pytest.mark.parametrize("frozen", ["backbone", "extras", "backbone.body.blocks.1"])
def test_with_frozen_parts(frozen: str) -> None:
    task = ssdlite()
    submodule = task.detector.get_submodule(frozen).requires_grad_(requires_grad=False)
    batch = make_batch(2, 96)
    require_same(task, of_batch(batch))
    submodule.eval()  # its BatchNorms too
    require_same(task, of_batch(batch))


def test_all_frozen_but_the_input() -> None:
    pixels = torch.randn(1, 3, 32, 32)
    vgg = Vgg16().requires_grad_(requires_grad=False)
    result: list[Tensor] = []
    for way in (as_ever, recomputing):
        inputs = pixels.clone().requires_grad_()
        with way(vgg):
            total = sum(feature.sum() for feature in vgg(inputs))
        result += torch.autograd.grad(total, inputs)
    assert torch.equal(*result)


def memory_of(
    task: nn.Module, batch: Batch, way: Callable[[nn.Module], AbstractContextManager[None]]
) -> CostTracker:
    """Return the memory of a step, counted on the meta device; `kept` is what forward keeps for backward."""
    bare, batch = copy.deepcopy(task).to("meta"), batch.to("meta")
    tracker = CostTracker([*bare.parameters(), *bare.buffers(), batch.inputs, *batch.targets.values()])
    with tracker:
        with way(bare):
            losses: Losses = bare(batch, "train")
        tracker.kept = tracker.live  # type: ignore[attr-defined]
        losses.total().backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None and p.grad.is_meta for p in bare.parameters())
    return tracker


@pytest.mark.parametrize(
    ("make", "num", "size", "kept", "peak"),
    [
        (partial(ssdlite, "mobilenetv3_large_100", size=320), 8, 320, 0.15, 0.40),
        (partial(ssdlite, "resnet50", size=320), 8, 320, 0.35, 0.50),
        (ssd, 4, 300, 0.40, 0.65),  # whose peak includes the gradients of all other weights
    ],
    ids=["ssdlite", "ssdlite-resnet50", "ssd300"],
)
def test_a_step_takes_less_memory(
    make: Callable[[], DetectionTask], num: int, size: int, kept: float, peak: float
) -> None:
    batch = make_batch(num, size)
    with torch.device("meta"):
        task = make()
    usual, again = (memory_of(task, batch, way) for way in (as_ever, recomputing))
    assert again.kept < kept * usual.kept  # type: ignore[attr-defined]
    assert again.peak < peak * usual.peak


def forwards(module: nn.Module) -> list[object]:
    return [vars(submodule).get("forward") for submodule in module.modules()]


def test_the_module_is_as_before() -> None:
    task = ssdlite()
    names, before = list(task.state_dict()), [dict(vars(submodule)) for submodule in task.modules()]
    with recomputing(task):
        assert any(forwards(task))
        assert list(task.state_dict()) == names
    assert [dict(vars(submodule)) for submodule in task.modules()] == before
    with pytest.raises(KeyError), recomputing(task):
        raise KeyError
    assert [dict(vars(submodule)) for submodule in task.modules()] == before


def test_a_forward_of_an_instance_is_restored() -> None:
    row = nn.Sequential(Block(), Block())
    bound = row[0].forward = row[0].forward  # bound, and in the instance
    with recomputing(row):
        assert row[0].forward is not bound
    assert row[0].forward is bound
    assert "forward" not in vars(row[1])


def test_a_copy_made_inside_runs_by_itself() -> None:
    row = nn.Sequential(Block(), Block())
    inputs = torch.randn(2, 4)
    with recomputing(row):
        other = copy.deepcopy(row)
        other(inputs).sum().backward()
    assert all(parameter.grad is None for parameter in row.parameters())
    assert all(parameter.grad is not None for parameter in other.parameters())


class Block(nn.Module):
    """Two layers that count their runs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.runs = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.runs += 1
        result: Tensor = self.second(self.first(inputs).sigmoid())
        return result


def test_only_what_backward_needs_runs_twice() -> None:
    row = nn.Sequential(Block(), Block(), Block())
    frozen, *others = row
    frozen.requires_grad_(requires_grad=False)
    inputs = torch.randn(2, 4)
    with recomputing(row), torch.no_grad():
        row(inputs)
    assert [block.runs for block in row] == [1, 1, 1]
    with recomputing(row):
        row(inputs).sum().backward()
    assert frozen.runs == 2
    assert [block.runs for block in others] == [3, 3]


def sum_of(*inputs: Tensor) -> Loss:
    return lambda module: module(*inputs).square().sum()


def test_buffers_that_a_result_depends_on() -> None:
    """Every call changes them, and the next works with what it has left."""

    class Counting(nn.Module):
        calls: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, inputs: Tensor) -> Tensor:
            self.calls += 1
            result: Tensor = self.layer(inputs * self.calls.clone()).sigmoid()
            return result

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unit, self.normed = Counting(), nn.Sequential(conv_norm(4, 4, 1), nn.Conv2d(4, 4, 1))

        def forward(self, inputs: Tensor) -> Tensor:
            """A single cell is normalized by the running statistics, here of the maps."""
            maps = self.unit(self.unit(inputs)).reshape(2, 4, 4, 4)
            result: Tensor = self.normed(maps) + self.normed(maps[:1, :, :1, :1])
            return result

    require_same(Twice(), sum_of(torch.randn(32, 4)))


def test_what_draws_must_do_so_alone() -> None:
    inputs = torch.randn(2, 4)
    for row in (nn.Sequential(Block(), Block()), nn.Sequential(Block(), nn.Linear(4, 4), nn.Dropout(0.5))):
        with recomputing(row):
            row(inputs)
        draws = any(isinstance(layer, nn.Dropout) for layer in row)
        refused = pytest.raises(BoxcrewError, match="random numbers") if draws else nullcontext()
        with refused, recomputing(row, draws_alone=False):
            row(inputs)


def test_a_second_backward_through_the_same_graph() -> None:
    row = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), spectral_norm(nn.Linear(4, 4)), nn.Linear(4, 4))
    with recomputing(row):
        total = row(torch.randn(8, 4)).square().sum()
    first = torch.autograd.grad(total, list(row.parameters()), retain_graph=True)
    second = torch.autograd.grad(total, list(row.parameters()))
    for gradient, again in zip(first, second, strict=True):
        assert torch.equal(gradient, again)


@pytest.mark.parametrize("kind", [nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.SiLU, nn.Hardswish])
@pytest.mark.parametrize("inplace", [True, False])
def test_rows_with_layers_that_work_in_place(kind: Callable[..., nn.Module], inplace: bool) -> None:
    layers: list[nn.Module] = [kind(inplace=inplace)]
    for _ in range(4):
        layers += [nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), kind(inplace=inplace), nn.Dropout2d(0.2)]
    require_same(nn.Sequential(nn.Conv2d(4, 4, 1), nn.Sequential(*layers)), sum_of(torch.randn(2, 4, 16, 16)))


def test_a_block_that_begins_in_place() -> None:
    class Begins(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act, self.layer = nn.ReLU6(inplace=True), nn.Linear(4, 4)

        def forward(self, inputs: Tensor) -> Tensor:
            result: Tensor = self.layer(self.act(inputs))
            return result

    require_same(nn.Sequential(Block(), Begins(), Block(), Begins()), sum_of(9 * torch.randn(8, 4)))


def test_several_things_in_and_out() -> None:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, maps: list[Tensor], *, factor: float, more: Mapping[str, Tensor]) -> dict[str, Any]:
            result = [self.layer(feature).tanh() * factor for feature in maps]
            return {"maps": result, "last": (result[-1] * more["x"].tanh(), None)}

    class Caller(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.many = nn.ModuleList(Many() for _ in range(2))

        def forward(self, inputs: Tensor) -> Tensor:
            maps = [inputs, 2 * inputs]
            for many in self.many:
                result = many(maps, factor=3.0, more={"x": inputs})
                maps.clear()  # the inputs of a unit have changed by the time it runs again
                maps += [*result["maps"], result["last"][0]]
            return torch.cat(maps)

    require_same(Caller(), sum_of(torch.randn(2, 4)))


class Doubled(TorchFunctionMode):
    """A context in which a sigmoid is twice as large."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        return 2 * result if func is Tensor.sigmoid else result


def test_what_changes_torchs_functions_does_so_again() -> None:
    def loss(module: nn.Module) -> Tensor:
        with Doubled():
            return sum_of(torch.ones(2, 4))(module)

    require_same(nn.Sequential(Block(), Block()), loss)
