"""A plan is data: it can be written, read, split by, and explained."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxcrew.core.errors import UsageError
from boxcrew.plan.plan import Clone, Plan, Replica
from tests.helpers.plans import plan_of


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


@given(
    shares=st.lists(st.integers(1, 20), min_size=1, max_size=5),
    accumulation=st.integers(1, 12),
)
def test_a_full_batch_is_shared_out_by_the_shares(shares: list[int], accumulation: int) -> None:
    """Each part as near to the shares as can be, but the first clone has some of every part."""
    accumulation = min(accumulation, sum(shares))
    counts = plan_of(*shares, strategy="clones", accumulation=accumulation).split(sum(shares))
    assert [sum(sizes) for sizes in counts] == plan_of(
        *shares, strategy="clones", accumulation=accumulation
    ).micro_batches(sum(shares))
    assert all(sizes[0] >= 1 for sizes in counts)
    if shares[0] >= accumulation:
        assert [sum(column) for column in zip(*counts, strict=True)] == shares
    if accumulation == 1:
        assert counts == [shares]


@given(
    shares=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    accumulation=st.integers(1, 6),
    num_samples=st.integers(1, 40),
)
def test_a_batch_of_any_size_is_shared_out(shares: list[int], accumulation: int, num_samples: int) -> None:
    counts = plan_of(*shares, strategy="clones", accumulation=accumulation).split(num_samples)
    assert sum(map(sum, counts)) == num_samples
    assert min(min(sizes) for sizes in counts) >= 0


def test_replicas_have_the_positions_of_their_clones() -> None:
    replicas = tuple(Replica(clones=(Clone(device="cpu", share=share),)) for share in (5, 3))
    two = plan_of(5, 3, strategy="ddp", replicas=replicas, accumulation=2)
    assert two.replica_ranges(0) == [range(3), range(4, 6)]
    assert two.replica_ranges(1) == [range(3, 4), range(6, 8)]
    assert plan_of(5, 3, strategy="clones", accumulation=2).replica_ranges(0) == [range(4), range(4, 8)]


def test_shares_must_be_the_batch() -> None:
    with pytest.raises(UsageError, match=r"shares 5 \+ 3 do not add up to batch 9"):
        plan_of(5, 3, batch=9)


def test_explains_itself() -> None:
    assert plan(cache_bytes=3 << 30).explain()[0].endswith("2 loader workers, 3.0 GiB for decoded images")
    first, *reasons = plan(accumulation=4).explain()
    assert first == (
        "single on cuda:0, batch 32 in 4 micro-batches, bf16, contiguous, 4 threads, 2 loader workers"
    )
    assert reasons == ["BatchNorm sees one of the 4 micro-batches at a time", "because"]
    assert "parts" not in plan().explain()[0]


@pytest.mark.parametrize(
    ("setting", "value"), [("batch", 0), ("threads", 0), ("precision", "fp8"), ("loader_workers", -1)]
)
def test_a_slip_of_the_hand_in_a_plan_is_named(setting: str, value: object) -> None:
    with pytest.raises(UsageError, match=setting):
        Plan.of(plan().tree() | {setting: value})
    with pytest.raises(UsageError, match="no such setting; did you mean 'batch'"):
        Plan.of(plan().tree() | {"bacth": 3})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer_device": "cuda:0"}, "must be the parameter_device"),
        ({"inputs_device": "cuda:0"}, "batches are made on the cpu"),
        (
            {"strategy": "single", "parameter_device": "cuda:0", "optimizer_device": "cuda:0"},
            "one clone, on the",
        ),
    ],
)
def test_a_plan_that_no_strategy_would_follow_is_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Plan.of(plan_of(8).tree() | change)


def test_clones_and_replicas_that_a_strategy_does_not_have_are_refused() -> None:
    with pytest.raises(UsageError, match="two clones of one process on cuda:0"):
        plan_of(4, 4, device="cuda:0", strategy="clones")
    plan_of(4, 4, device="cpu", strategy="clones")
    with pytest.raises(UsageError, match="one clone, on the parameter device"):
        plan_of(4, 4, strategy="single")
    replicas = (Replica(clones=(Clone(device="cpu", share=4),)),) * 2
    with pytest.raises(UsageError, match="is for one replica, not 2"):
        plan_of(4, 4, strategy="clones", replicas=replicas)
    with pytest.raises(UsageError, match="fsdp has one clone in each replica"):
        plan_of(4, 4, strategy="fsdp")
    both = (Clone(device="cuda:0", share=4), Clone(device="cuda:1", share=4))
    with pytest.raises(UsageError, match="ddp has the clones of a replica on one device"):
        plan_of(4, 4, strategy="ddp", device="cuda:0", replicas=(Replica(clones=both),))
