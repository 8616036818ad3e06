"""Clones are dealt to replicas, and what each of them computes does not depend on who computes it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from boxcrew.plan.dealing import deal
from tests.helpers.plans import plan_of


@given(num_clones=st.integers(1, 1024), data=st.data())
def test_every_clone_has_one_replica_and_every_replica_almost_as_many(
    num_clones: int, data: st.DataObject
) -> None:
    num = data.draw(st.integers(1, num_clones))
    dealt = deal(num_clones, num)
    assert [clone for own in dealt for clone in own] == list(range(num_clones))
    sizes = [len(own) for own in dealt]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@given(
    shares=st.lists(st.integers(1, 9), min_size=2, max_size=6),
    accumulation=st.integers(1, 4),
    num_read=st.integers(0, 9),
)
def test_a_clone_has_the_same_samples_on_any_replica(
    shares: list[int], accumulation: int, num_read: int
) -> None:
    accumulation = min(accumulation, sum(shares))
    whole = plan_of(*shares, strategy="ddp", accumulation=accumulation)
    positions = [whole.clone_positions(clone) for clone in range(len(shares))]
    assert sorted(position for own in positions for position in own) == list(range(sum(shares)))
    for num in range(1, len(shares) + 1):
        plan = whole.with_replicas(num)
        assert [plan.clone_positions(clone) for clone in range(len(shares))] == positions
        assert [plan.clones_of(rank) for rank in range(num)] == list(deal(len(shares), num))
        assert plan.with_replicas(1) == whole
    for clone, own in enumerate(positions):
        read = min(num_read, len(own))
        assert sum(whole.clone_split(clone, read)) == read
