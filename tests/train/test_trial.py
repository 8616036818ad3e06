from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from boxcrew.core.types import Batch, Losses
from boxcrew.plan.plan import MemoryFormat, Plan
from boxcrew.plan.search import DeployConfig
from boxcrew.tasks.base import Task
from boxcrew.testing.plans import plan_of
from boxcrew.train import trial
from boxcrew.train.schedule import ENDLESS, Length
from boxcrew.train.trial import fastest, is_worth_it, ways_of


class Paced(Task):
    """Takes as long as it is told for each memory format, and remembers what it was given."""

    def __init__(self, **seconds: float) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2), nn.Dropout(0.5))
        self.seconds = seconds

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        last = batch.inputs.is_contiguous(memory_format=torch.channels_last)
        time.sleep(self.seconds["channels_last" if last else "contiguous"])
        return Losses(
            terms={"sum": self.layer(batch.inputs.float()).sum()}, weight=torch.tensor(float(len(batch)))
        )


def plan(memory_format: MemoryFormat = "channels_last", *, threads: int = 1) -> Plan:
    return plan_of(
        6,
        memory_format=memory_format,
        threads=threads,
        reasons=("a rule",),
    )


def batch(num_samples: int = 6) -> Batch:
    inputs = torch.zeros(num_samples, 3, 5, 7, dtype=torch.uint8)
    return Batch(inputs=inputs, targets={}, keys=("a",) * num_samples)


def formats() -> list[Plan]:
    return ways_of(plan(threads=1), DeployConfig())


def test_what_the_user_has_set_is_not_tried() -> None:
    assert [way.memory_format for way in ways_of(plan(threads=2), DeployConfig())] == [
        "channels_last",
        "contiguous",
    ]
    assert ways_of(plan(threads=2), DeployConfig(memory_format="channels_last")) == [plan(threads=2)]


def test_of_many_threads_half_are_tried_too() -> None:
    only_threads = DeployConfig(memory_format="channels_last")
    assert [way.threads for way in ways_of(plan(threads=8), only_threads)] == [8, 4]
    assert len(ways_of(plan(threads=8), DeployConfig())) == 4
    assert len(ways_of(plan(threads=8), DeployConfig(memory_format="contiguous", threads=8))) == 1


def test_other_devices_have_no_choice() -> None:
    on_gpu = plan_of(6, device="cuda:0")
    assert ways_of(on_gpu, DeployConfig()) == [on_gpu]


@pytest.mark.parametrize(
    ("channels_last", "contiguous", "chosen"),
    [(0.03, 0.002, "contiguous"), (0.002, 0.03, "channels_last"), (0.05, 0.049, "channels_last")],
)
def test_only_a_clearly_faster_way_replaces_the_first(
    channels_last: float, contiguous: float, chosen: str
) -> None:
    found = fastest(formats(), Paced(channels_last=channels_last, contiguous=contiguous), batch(4))
    assert found.memory_format == chosen
    first, said = found.reasons
    assert first == "a rule"
    assert said.startswith("tried with 4 samples: channels_last on ")
    assert found == formats()[0].model_copy(update={"memory_format": chosen, "reasons": found.reasons})


def test_it_leaves_no_trace() -> None:
    task = Paced(channels_last=0, contiguous=0)
    before = {name: value.clone() for name, value in task.state_dict().items()}
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    fastest(ways_of(plan(threads=4), DeployConfig()), task, batch(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert all(torch.equal(value, before[name]) for name, value in task.state_dict().items())
    assert all(parameter.grad is None for parameter in task.parameters())


def test_what_takes_too_long_is_not_tried_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "MOST_SECONDS", 0.1)
    begun = time.monotonic()
    found = fastest(formats(), Paced(channels_last=0.2, contiguous=0.001), batch())
    assert time.monotonic() - begun < 0.4
    assert found.memory_format == "channels_last"
    assert found.reasons[-1].endswith(
        ": channels_last on 1 thread not in time, contiguous on 1 thread not in time"
    )


@pytest.mark.parametrize("fails", ["channels_last", "contiguous"])
def test_a_way_that_fails_is_named_not_taken_and_ends_nothing(fails: str) -> None:
    class Fragile(Paced):
        def forward(self, batch: Batch, phase: str = "train") -> Losses:
            last = batch.inputs.is_contiguous(memory_format=torch.channels_last)
            if last == (fails == "channels_last"):
                raise RuntimeError("no such layout")
            return super().forward(batch, phase)

    found = fastest(formats(), Fragile(channels_last=0, contiguous=0), batch())
    assert found.memory_format != fails
    assert f"{fails} on 1 thread failed (no such layout)" in found.reasons[-1]


def test_a_part_of_a_step_is_tried_as_it_is() -> None:
    """BatchNorms refuse single samples of 1 x 1 maps, and the steps of this run never have any."""
    ways = [way.model_copy(update={"accumulation": 4}) for way in formats()]
    task = Paced(channels_last=0, contiguous=0)
    single_cells = Batch(inputs=torch.zeros(2, 3, 1, 1, dtype=torch.uint8), targets={}, keys=("a", "b"))
    found = fastest(ways, task, single_cells)
    assert found.reasons[-1].startswith("tried with 2 samples")
    assert found.accumulation == 4


@pytest.mark.parametrize(
    ("steps", "seconds", "worth"),
    [
        (199, None, False),
        (200, None, True),
        (ENDLESS, 119.0, False),
        (ENDLESS, 120.0, True),
        (10, 900.0, False),
    ],
)
def test_short_runs_do_not_earn_it_back(steps: int, seconds: float | None, worth: bool) -> None:
    assert is_worth_it(Length(steps=steps, seconds=seconds, steps_per_epoch=5)) is worth
