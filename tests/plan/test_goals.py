"""Goals as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxcrew.core.config import Config
from boxcrew.core.errors import UsageError
from boxcrew.plan.request import Goal, GoalSetting


class Holder(Config):
    goal: GoalSetting = Goal()


@pytest.mark.parametrize(
    ("text", "goal", "shown"),
    [
        ("fastest", Goal(), "fastest"),
        ("smallest", Goal(kind="smallest"), "smallest"),
        ("deadline:2h", Goal(kind="deadline", seconds=7200), "deadline:2h00m"),
        ("deadline:1h30m", Goal(kind="deadline", seconds=5400), "deadline:1h30m"),
        ("deadline:90", Goal(kind="deadline", seconds=90), "deadline:1m30s"),
        ("deadline:0.25s", Goal(kind="deadline", seconds=0.25), "deadline:0.2s"),
        ("budget:8GB", Goal(kind="budget", num_bytes=8 * 10**9), "budget:7.5 GiB"),
        ("budget:512MiB", Goal(kind="budget", num_bytes=512 << 20), "budget:512.0 MiB"),
        ("budget:1.5gib", Goal(kind="budget", num_bytes=3 << 29), "budget:1.5 GiB"),
    ],
)
def test_goals_are_read_shown_and_written(text: str, goal: Goal, shown: str) -> None:
    assert Goal.parse(text) == goal
    assert str(goal) == shown
    assert Goal.parse(goal.exactly()) == goal
    assert Goal.parse(goal) is goal
    held = Holder.of({"goal": text})
    assert held.goal == goal
    assert Holder.of(held.tree()) == held


@given(seconds=st.floats(0.001, 1e8))
@settings(max_examples=50)
def test_a_deadline_is_written_exactly(seconds: float) -> None:
    goal = Goal(kind="deadline", seconds=seconds)
    assert Goal.parse(goal.exactly()) == goal


@given(num_bytes=st.integers(1, 10**15))
@settings(max_examples=50)
def test_a_budget_is_written_exactly(num_bytes: int) -> None:
    goal = Goal(kind="budget", num_bytes=num_bytes)
    assert Goal.parse(goal.exactly()) == goal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fast", "goal=fast: no such goal"),
        ("", "goal=: no such goal"),
        ("fastest:2h", "goal=fastest:2h: no such goal"),
        ("deadline", "goal=deadline: no such goal"),
        ("deadline:", "goal=deadline:: no such goal"),
        ("deadline:soon", "soon: not a duration"),
        ("deadline:0", "0: a duration must be above zero"),
        ("deadline:-2h", "-2h: not a duration"),
        ("budget:", "goal=budget:: no such goal"),
        ("budget:x", "goal=budget:x: not a size"),
        ("budget:-1GB", "goal=budget:-1GB: not a size"),
        ("budget:8 parsecs", "goal=budget:8 parsecs: not a size"),
        ("budget:0GB", "goal=budget:0GB: a budget must be above zero"),
        ("budget:0.1B", "goal=budget:0.1B: a budget must be above zero"),
    ],
)
def test_what_is_no_goal_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Goal.parse(text)
    assert message in caught.value.message
    with pytest.raises(UsageError):
        Holder.of({"goal": text})


@pytest.mark.parametrize("text", ["deadline:soon", "deadline:0", "budget:x", "fast"])
def test_the_setting_is_named(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Goal.parse(text)
    assert caught.value.message.startswith(f"goal={text}: ")


@pytest.mark.parametrize("text", [f"deadline:{'9' * 400}d", f"budget:{'9' * 400}GB"])
def test_a_limit_beyond_all_bounds_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Goal.parse(text)
