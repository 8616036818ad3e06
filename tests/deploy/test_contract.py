"""Every strategy that can work in one process keeps the contract; test_replicated.py is for several."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from boxcrew.core.errors import UsageError
from boxcrew.deploy.deployment import STRATEGIES
from boxcrew.plan.plan import MemoryFormat, Plan, Strategy
from boxcrew.testing import strategies
from tests.helpers.plans import plan_of

SAMPLES = 11
SEVERAL = ((6, 5), (7, 3, 1), (1, 10), (3, 3, 3, 2))
ALONE = [name for name in STRATEGIES.names() if name != "parameter_server"]
WAYS = [(name, (SAMPLES,)) for name in ALONE] + [("clones", shares) for shares in SEVERAL]
"""Strategies, and the shares of their clones."""

ways = pytest.mark.parametrize(
    "way", WAYS, ids=[f"{name}-{'-'.join(map(str, shares))}" for name, shares in WAYS]
)
Way = tuple[str, tuple[int, ...]]


def make_plan(
    way: Way, *, accumulation: int = 1, memory_format: MemoryFormat = "contiguous", threads: int = 1
) -> Plan:
    name, shares = way
    return plan_of(
        *shares,
        strategy=name,
        accumulation=accumulation,
        memory_format=memory_format,
        threads=threads,
    )


@pytest.mark.parametrize("accumulation", [1, 2, 3, SAMPLES])
@ways
def test_gradients_do_not_depend_on_how_a_step_is_split(way: Way, accumulation: int) -> None:
    batch = strategies.uneven_batch(SAMPLES)
    plan = make_plan(way, accumulation=accumulation)
    strategies.check_gradients(plan, batch, dtype=torch.float64, tolerance=1e-10)
    strategies.check_gradients(plan, batch, dtype=torch.float32, tolerance=1e-5)


@ways
def test_a_batch_smaller_than_the_parts_or_without_an_object(way: Way) -> None:
    plan = make_plan(way, accumulation=3)
    strategies.check_gradients(plan, strategies.uneven_batch(2), dtype=torch.float64, tolerance=1e-10)
    strategies.check_gradients(plan, strategies.uneven_batch(1), dtype=torch.float64, tolerance=1e-10)


@pytest.mark.parametrize("accumulation", [1, 3])
@ways
def test_a_weight_below_one_is_divided_by_too(way: Way, accumulation: int) -> None:
    """A step of common classes weighs so little with task.class_weights."""
    batch, plan = strategies.uneven_batch(SAMPLES), make_plan(way, accumulation=accumulation)
    strategies.check_gradients(plan, batch, dtype=torch.float64, tolerance=1e-10, unit=1e-3)


@ways
def test_updates(way: Way) -> None:
    batch = strategies.uneven_batch(SAMPLES)
    strategies.check_updates(make_plan(way), batch)
    strategies.check_skips_non_finite_gradients(make_plan(way), batch)


@ways
def test_a_step_can_be_taken_back(way: Way) -> None:
    strategies.check_discards(make_plan(way), strategies.uneven_batch(SAMPLES))
    strategies.check_discards(make_plan(way, accumulation=3), strategies.uneven_batch(SAMPLES))


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
        RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
        ),
    ],
    ids=["gpu", "cpu"],
)
@ways
def test_where_memory_runs_out_parts_get_smaller(way: Way, error: RuntimeError) -> None:
    strategies.check_runs_out_of_memory(make_plan(way), strategies.uneven_batch(SAMPLES), error)
    strategies.check_runs_out_of_memory(
        make_plan(way, accumulation=2), strategies.uneven_batch(SAMPLES), error
    )


@ways
def test_the_process_is_as_it_was(way: Way) -> None:
    strategies.check_restores_threads(make_plan(way, threads=torch.get_num_threads() + 1))


@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last"])
@ways
def test_devices_and_state(way: Way, memory_format: MemoryFormat) -> None:
    strategies.check_devices_and_formats(make_plan(way, memory_format=memory_format))
    strategies.check_state(make_plan(way, memory_format=memory_format))


def test_plans_know_all_strategies_and_no_other() -> None:
    assert set(STRATEGIES.names()) == set(get_args(Strategy))
    written = make_plan(("single", (SAMPLES,))).tree() | {"strategy": "sinlge"}
    with pytest.raises(UsageError, match="sinlge"):
        Plan.of(written)
