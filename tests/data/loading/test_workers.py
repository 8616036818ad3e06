from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from boxcrew.core.errors import BoxcrewError
from boxcrew.data.loading.workers import Workers, fetch_all
from tests.helpers.forked import Forked, Job

# The tests are about order and life, not speed.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def square(number: int) -> dict[str, object]:
    return {"square": torch.tensor([number * number]), "worker": os.getpid(), "words": ("a", str(number))}


def slow_square(number: int) -> int:
    time.sleep(0.05)
    return number * number


def stumble(number: int) -> int:
    if number == 3:
        raise ZeroDivisionError("three")
    return number


def drained(results: Iterator[object], limit: float) -> None:
    started = time.monotonic()
    for _ in results:
        assert time.monotonic() - started < limit, "no error came"


@pytest.mark.parametrize("num", [0, 1, 3])
def test_results_come_in_order_from_other_processes(num: int) -> None:
    results = list(fetch_all(square, range(20), Workers(num=num)))
    assert [int(each["square"]) for each in results] == [n * n for n in range(20)]  # type: ignore[call-overload]
    assert [each["words"] for each in results] == [("a", str(n)) for n in range(20)]
    makers = {each["worker"] for each in results}
    assert makers == {os.getpid()} if num == 0 else len(makers - {os.getpid()}) == num


def test_requests_may_be_endless_and_are_taken_only_as_far_as_needed() -> None:
    taken = []

    def requests() -> Iterator[int]:
        for number in itertools.count():
            taken.append(number)
            yield number

    results = fetch_all(slow_square, requests(), Workers(num=2, prefetch=3))
    assert [next(results) for _ in range(4)] == [0, 1, 4, 9]
    assert len(taken) <= 4 + 2 * 3
    results.close()  # type: ignore[attr-defined]


def test_processes_end_with_the_iterator() -> None:
    results = fetch_all(slow_square, itertools.count(), Workers(num=2))
    next(results)
    assert len(multiprocessing.active_children()) == 2
    results.close()  # type: ignore[attr-defined]
    assert not multiprocessing.active_children()


def test_torch_randomness_of_the_program_is_not_touched() -> None:
    before = torch.get_rng_state()
    for num in (0, 1):
        list(fetch_all(slow_square, range(2), Workers(num=num)))
    assert (torch.get_rng_state() == before).all()


@pytest.mark.parametrize("num", [0, 2])
def test_an_error_of_the_work_itself_comes_through(num: int) -> None:
    with pytest.raises(ZeroDivisionError, match="three"):
        list(fetch_all(stumble, range(10), Workers(num=num)))
    assert not multiprocessing.active_children()


def test_a_killed_worker_is_a_clear_error_where_results_are_awaited() -> None:
    handler = signal.getsignal(signal.SIGCHLD)
    results = fetch_all(slow_square, itertools.count(), Workers(num=2))
    next(results)
    assert signal.getsignal(signal.SIGCHLD) == handler
    victim = multiprocessing.active_children()[0]
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    victim.join(5)
    time.sleep(0.2)  # nothing must be raised here
    with pytest.raises(BoxcrewError, match=f"loader process died.*{victim.pid}") as caught:
        drained(results, 20)
    assert "loader.workers" in caught.value.advice
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("num", [1, 8])
def test_workers_leave_ctrl_c_to_the_parent_from_their_first_moment(num: int) -> None:
    results = fetch_all(slow_square, range(30), Workers(num=num))
    squares = [next(results)]  # of the first worker: the last has hardly begun
    for child in multiprocessing.active_children():
        assert child.pid is not None
        os.kill(child.pid, signal.SIGINT)
    assert squares + list(results) == [n * n for n in range(30)]


ENDLESS = """
import itertools, multiprocessing, time
from pathlib import Path
from boxcrew.core.files import write_text
from boxcrew.data.loading.workers import Workers, fetch_all

def slow(number):
    time.sleep(60 if number > 3 else 0)
    return number

results = fetch_all(slow, itertools.count(), Workers(num=2))
next(results), next(results)
write_text(Path(given["file"]), " ".join(str(child.pid) for child in multiprocessing.active_children()))
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is of Linux")
def test_workers_die_with_a_killed_parent_at_once(tmp_path: Path) -> None:
    parent = Forked(Job(code=ENDLESS, given={"file": str(tmp_path / "workers")}))
    while not (tmp_path / "workers").exists():
        assert parent.poll() is None
        time.sleep(0.02)
    workers = [int(word) for word in (tmp_path / "workers").read_text().split()]
    assert len(workers) == 2
    assert all(psutil.pid_exists(worker) for worker in workers)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 2
    while any(_running(worker) for worker in workers):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.02)


def _running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


AFTER_THREADS = """
import cv2, numpy as np, torch
from boxcrew.data.loading.workers import Workers, fetch_all

cv2.setNumThreads(4)
torch.set_num_threads(4)
image = np.zeros((1500, 1500, 3), np.uint8)
cv2.GaussianBlur(image, (21, 21), 0)
matrix = torch.randn(700, 700, requires_grad=True)
(matrix @ matrix).sigmoid().sum().backward()

def work(number):
    blurred = cv2.GaussianBlur(image + number, (5, 5), 0)
    warped = cv2.warpAffine(blurred, np.eye(2, 3), (900, 900))
    return torch.from_numpy(np.stack([warped] * 2)), int(torch.ones(300_000).sum())

results = list(fetch_all(work, range(6), Workers(num=2)))
print([int(tensor[0, 450, 450, 0]) for tensor, _ in results], cv2.getNumThreads())
"""


def test_workers_may_start_after_the_parents_thread_pools() -> None:
    """Threads do not survive a fork; a worker that waits for one would hang."""
    out, err = Forked(Job(code=AFTER_THREADS)).communicate(timeout=60)
    assert out.strip() == "[0, 1, 2, 3, 4, 5] 4", err
