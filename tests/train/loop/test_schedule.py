"""The limits of runs, and the learning rate in every part of them."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxcrew.core.errors import UsageError
from boxcrew.train.loop.schedule import Progress, RunLimits, ScheduleConfig


def length(
    *,
    steps: int | None = None,
    epochs: float | None = None,
    seconds: float | None = None,
    num_samples: int = 100,
    batch: int = 10,
) -> RunLimits:
    return RunLimits.of(steps=steps, epochs=epochs, seconds=seconds, num_samples=num_samples, batch=batch)


def at(fraction: float, *, epoch: float = 0.0) -> Progress:
    return Progress(step=0, epoch=epoch, fraction=fraction)


def schedule(name: str, **settings: object) -> ScheduleConfig:
    return ScheduleConfig.of({"name": name, **settings})


def test_steps_and_epochs_end_a_run_at_the_nearer() -> None:
    assert length(steps=7).steps == 7
    assert length(epochs=3).steps == 30
    assert length(steps=7, epochs=3).steps == 7
    assert length(steps=70, epochs=3).steps == 30


def test_time_alone_has_no_last_step() -> None:
    by_time = length(seconds=10)
    assert not by_time.bounded_by_steps
    assert by_time.progress(10**9, 0.0).fraction == pytest.approx(0, abs=1e-6)
    assert by_time.progress(1, 5.0).fraction == 0.5
    assert by_time.progress(1, 10.0).fraction == 1
    assert by_time.progress(1, 11.0).fraction == 1


def test_time_and_steps_end_a_run_at_the_first() -> None:
    both = length(steps=10, seconds=100)
    assert both.bounded_by_steps
    assert both.progress(5, 10.0).fraction == 0.5
    assert both.progress(5, 80.0).fraction == 0.8
    assert both.progress(10, 1.0).fraction == 1
    assert both.progress(1, 100.0).fraction == 1


def test_epochs_are_counted_in_samples_whatever_the_batch() -> None:
    small = length(epochs=10, num_samples=4, batch=16)
    assert small.steps == 3  # 40 samples
    assert small.progress(3, 0.0).epoch == 12


@given(
    epochs=st.sampled_from(["0.01", "0.1", "0.3", "1", "1.1", "2.2", "3", "7", "100"]),
    num_samples=st.integers(1, 2000),
    batch=st.integers(1, 128),
)
def test_a_run_has_just_the_steps_its_epochs_need(epochs: str, num_samples: int, batch: int) -> None:
    exact = math.ceil(Fraction(epochs) * num_samples / batch)
    assert length(epochs=float(epochs), num_samples=num_samples, batch=batch).steps == max(1, exact)


def test_fixed() -> None:
    flat = schedule("fixed", warmup=0)
    assert [flat.factor(at(f)) for f in (0, 0.5, 1)] == [1, 1, 1]


def test_cosine() -> None:
    cosine = schedule("cosine", warmup=0, end=0.1)
    assert cosine.factor(at(0)) == 1
    assert cosine.factor(at(0.5)) == pytest.approx(0.55)
    assert cosine.factor(at(1)) == pytest.approx(0.1)


@pytest.mark.parametrize(("power", "middle"), [(1, 0.6), (2, 0.4)])
def test_polynomial(power: float, middle: float) -> None:
    polynomial = schedule("polynomial", warmup=0, end=0.2, power=power)
    assert polynomial.factor(at(0)) == pytest.approx(1)
    assert polynomial.factor(at(0.5)) == pytest.approx(middle)
    assert polynomial.factor(at(1)) == pytest.approx(0.2)


def test_exponential_in_jumps_and_smoothly() -> None:
    jumps = schedule("exponential", warmup=0, decay=0.5, every=2, end=0.01)
    factors = [jumps.factor(at(0, epoch=e)) for e in (0, 1.9, 2, 5, 100)]
    assert factors == [1, 1, 0.5, 0.25, 0.01]
    smooth = schedule("exponential", warmup=0, decay=0.5, every=2, end=0.01, staircase=False)
    assert smooth.factor(at(0, epoch=1)) == pytest.approx(0.5**0.5)
    assert schedule("exponential", warmup=0).factor(at(0, epoch=2)) == pytest.approx(0.94)


def test_step() -> None:
    falls = schedule("step", warmup=0, at=(0.5, 0.8))
    factors = [falls.factor(at(f)) for f in (0, 0.49, 0.5, 0.79, 0.8, 1)]
    assert factors == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    assert schedule("step", warmup=0, at="0.5", decay=0.3).factor(at(0.9)) == pytest.approx(0.3)


@pytest.mark.parametrize("name", ["fixed", "cosine", "polynomial", "exponential", "step"])
def test_warm_up_rises_from_above_zero_to_the_schedule(name: str) -> None:
    warm, cold = schedule(name, warmup=0.2), schedule(name, warmup=0)
    factors = [warm.factor(at(f)) for f in (0, 0.05, 0.1, 0.15, 0.2)]
    assert 0 < factors[0] < 0.02
    assert factors == sorted(factors)
    assert warm.factor(at(0.1)) == pytest.approx(0.51 * cold.factor(at(0.1)))
    for fraction in (0.2, 0.6, 1.0):
        assert warm.factor(at(fraction)) == cold.factor(at(fraction))


@given(
    name=st.sampled_from(["fixed", "cosine", "polynomial", "exponential", "step"]),
    fraction=st.floats(0, 1),
    epoch=st.floats(0, 1000),
    warmup=st.floats(0, 0.99),
)
def test_no_factor_is_above_one_or_below_zero(
    name: str, fraction: float, epoch: float, warmup: float
) -> None:
    assert 0 <= schedule(name, warmup=warmup).factor(at(fraction, epoch=epoch)) <= 1


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(UsageError, match=r"schedule\.name"):
        ScheduleConfig.of({"name": "cosinus"})
