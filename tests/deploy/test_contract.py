"""Every strategy of the registry keeps the contract."""

from __future__ import annotations

import pytest
import torch

from boxcrew.core.errors import UsageError
from boxcrew.deploy.deployment import STRATEGIES, deploy
from boxcrew.plan.plan import MemoryFormat, Plan
from boxcrew.testing import strategies

NAMES = STRATEGIES.names()
SAMPLES = 11


def plan(
    strategy: str, *, accumulation: int = 1, memory_format: MemoryFormat = "contiguous", threads: int = 1
) -> Plan:
    return Plan(
        strategy=strategy,
        clone_device="cpu",
        parameter_device="cpu",
        optimizer_device="cpu",
        batch=SAMPLES,
        accumulation=accumulation,
        memory_format=memory_format,
        threads=threads,
        loader_workers=0,
    )


@pytest.mark.parametrize("accumulation", [1, 2, 3, SAMPLES])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_do_not_depend_on_how_a_step_is_split(name: str, accumulation: int) -> None:
    batch = strategies.uneven_batch(SAMPLES)
    one = plan(name, accumulation=accumulation)
    strategies.check_gradients(one, batch, dtype=torch.float64, tolerance=1e-10)
    strategies.check_gradients(one, batch, dtype=torch.float32, tolerance=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_smaller_than_the_parts_or_without_an_object(name: str) -> None:
    one = plan(name, accumulation=3)
    strategies.check_gradients(one, strategies.uneven_batch(2), dtype=torch.float64, tolerance=1e-10)
    strategies.check_gradients(one, strategies.uneven_batch(1), dtype=torch.float64, tolerance=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_updates(name: str) -> None:
    batch = strategies.uneven_batch(SAMPLES)
    strategies.check_updates(plan(name), batch)
    strategies.check_refuses_what_is_not_finite(plan(name), batch)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_can_be_taken_back(name: str) -> None:
    strategies.check_discards(plan(name), strategies.uneven_batch(SAMPLES))
    strategies.check_discards(plan(name, accumulation=3), strategies.uneven_batch(SAMPLES))


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
@pytest.mark.parametrize("name", NAMES)
def test_where_memory_runs_out_parts_get_smaller(name: str, error: RuntimeError) -> None:
    strategies.check_runs_out_of_memory(plan(name), strategies.uneven_batch(SAMPLES), error)
    strategies.check_runs_out_of_memory(plan(name, accumulation=2), strategies.uneven_batch(SAMPLES), error)


@pytest.mark.parametrize("name", NAMES)
def test_the_process_is_as_it_was(name: str) -> None:
    strategies.check_leaves_no_trace(plan(name, threads=torch.get_num_threads() + 1))


@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last"])
@pytest.mark.parametrize("name", NAMES)
def test_places_and_state(name: str, memory_format: MemoryFormat) -> None:
    strategies.check_places(plan(name, memory_format=memory_format))
    strategies.check_state(plan(name, memory_format=memory_format))


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(UsageError, match="sinlge: no such strategy; did you mean 'single'"):
        deploy(plan("sinlge"))
