"""Work done ahead in other processes, with its results in order."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import cv2
import torch
from torch.utils.data import DataLoader, Dataset

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.parent_process import die_with
from boxcrew.core.torch_tools.loader_workers import shut_down_workers

Request = TypeVar("Request")
Result = TypeVar("Result")


LEFT_TO_PARENT = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Who makes the batches."""

    num: int = 0  # processes; 0: the calling one makes each batch when it is asked for
    prefetch: int = 4  # batches each process makes ahead
    pin_memory: bool = False  # in page-locked memory, for copies to a GPU that do not wait


class _Fetched(Dataset[Result], Generic[Request, Result]):
    """What `fetch` gives, looked up by request."""

    def __init__(self, fetch: Callable[[Request], Result]) -> None:
        self._fetch = fetch

    def __getitem__(self, request: Request) -> Result:
        return self._fetch(request)


def fetch_all(
    fetch: Callable[[Request], Result], requests: Iterable[Request], workers: Workers
) -> Iterator[Result]:
    """`fetch(request)` for each request, in order. Results are dictionaries, tuples and so on of tensors
    and plain values. Processes end with the iterator, and with the thread that first asked it.
    """
    loader = DataLoader(
        _Fetched(fetch),
        batch_size=None,
        sampler=requests,
        collate_fn=_as_it_is,
        num_workers=workers.num,
        prefetch_factor=workers.prefetch if workers.num else None,
        pin_memory=workers.pin_memory,
        worker_init_fn=partial(_settle, os.getpid()),
        # Workers need none of torch's randomness; drawing it here would move the state of the whole program.
        generator=torch.Generator(),
        # Forked, workers start at once and share the records; elsewhere the system's own way.
        multiprocessing_context="fork" if workers.num and sys.platform == "linux" else None,
    )
    with _signals_held():
        results = _without_child_signal(loader)
    try:
        yield from results
    except RuntimeError as error:
        if "DataLoader worker (pid" not in str(error):
            raise
        raise BoxcrewError(
            f"a loader process died: {str(error).splitlines()[0]}",
            advice="most often memory ran out: try fewer loader.workers, a smaller loader.prefetch or batch",
        ) from error
    finally:
        # Not left to the garbage collector: whoever keeps an error would keep the processes alive.
        shut_down_workers(results)


@contextmanager
def _signals_held() -> Iterator[None]:
    """A process that is started inside is not reached by a signal before it has settled."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, LEFT_TO_PARENT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _without_child_signal(loader: DataLoader[Result]) -> Iterator[Result]:
    """Starts the processes, but not torch's signal handler that raises, wherever the program happens to
    be, when one dies: that may be in the middle of a checkpoint. A death is still found within seconds
    where a result is waited for.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGCHLD"):
        return iter(loader)
    before = signal.getsignal(signal.SIGCHLD)
    results = iter(loader)
    signal.signal(signal.SIGCHLD, before if before is not None else signal.SIG_DFL)
    return results


def _as_it_is(result: Result) -> Result:
    return result


def _settle(parent: int, worker: int) -> None:  # noqa: ARG001
    """First thing in a worker process."""
    # Ctrl-C, and what ends a job or a service, reach the whole group: the parent decides what they mean and
    # ends its workers. They must last until it has finished its step, or the examination it is in.
    for number in LEFT_TO_PARENT:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, LEFT_TO_PARENT)
    die_with(parent)
    # 0, not 1: for 1 OpenCV would wait for the threads of a pool that a fork does not bring along, for ever.
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
