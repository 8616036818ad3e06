"""A plan is data: it can be written, read, split by, and explained."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxcrew.core.errors import UsageError
from boxcrew.plan.plan import Plan
from boxcrew.testing.plans import plan_of


def plan(*, accumulation: int = 1, cache_bytes: int = 0) -> Plan:
    return plan_of(
        32,
        device="cuda:0",
        accumulation=accumulation,
        precision="bf16",
        threads=4,
        loader_workers=2,
        cache_bytes=cache_bytes,
        reasons=("because",),
    )


def test_round_trip_through_json() -> None:
    assert Plan.of(json.loads(json.dumps(plan(accumulation=3).tree()))) == plan(accumulation=3)


@given(accumulation=st.integers(1, 40), num_samples=st.integers(1, 200))
def test_micro_batches_are_all_samples_in_nearly_equal_parts(accumulation: int, num_samples: int) -> None:
    parts = plan(accumulation=accumulation).micro_batches(num_samples)
    assert sum(parts) == num_samples
    assert len(parts) == min(accumulation, num_samples)
    assert max(parts) - min(parts) <= 1
    assert min(parts) >= 1


def test_explains_itself() -> None:
    assert plan(cache_bytes=3 << 30).explain()[0].endswith("2 loader workers, 3.0 GiB for decoded images")
    first, *reasons = plan(accumulation=4).explain()
    assert first == ("single on cuda:0, batch 32 in 4 parts, bf16, contiguous, 4 threads, 2 loader workers")
    assert reasons == ["because"]
    assert "parts" not in plan().explain()[0]


@pytest.mark.parametrize(
    ("setting", "value"), [("batch", 0), ("threads", 0), ("precision", "fp8"), ("loader_workers", -1)]
)
def test_a_slip_of_the_hand_in_a_plan_is_named(setting: str, value: object) -> None:
    with pytest.raises(UsageError, match=setting):
        Plan.of(plan().tree() | {setting: value})
    with pytest.raises(UsageError, match="no such setting; did you mean 'batch'"):
        Plan.of(plan().tree() | {"bacth": 3})
