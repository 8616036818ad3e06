"""Work that is done ahead in loader processes, with its results in order."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import cv2
import torch
from torch.utils.data import DataLoader, Dataset

from boxcrew.core.errors import BoxcrewError, first_line
from boxcrew.core.parent_process import die_with
from boxcrew.core.torch_tools.loader_workers import shut_down_workers

Request = TypeVar("Request")
Result = TypeVar("Result")

PARENT_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Settings of the loader processes: how many, and how many batches each makes ahead."""

    num: int = 0  # processes; 0: the calling one makes each batch when it is asked for
    prefetch: int = 4  # batches each process makes ahead
    pin_memory: bool = False  # in page-locked memory, for copies to a GPU that do not wait


@dataclass(frozen=True)
class _Failure:
    """An error that ended the work on a request."""

    error: BoxcrewError


class _FetchDataset(Dataset[Result | _Failure], Generic[Request, Result]):
    """Adapts `fetch` to torch: an item is the result of a request."""

    def __init__(self, fetch: Callable[[Request], Result]) -> None:
        self._fetch = fetch

    def __getitem__(self, request: Request) -> Result | _Failure:
        try:
            return self._fetch(request)
        except BoxcrewError as error:
            return _Failure(error)  # torch would make a traceback of its message


def fetch_all(
    fetch: Callable[[Request], Result], requests: Iterable[Request], workers: Workers
) -> Iterator[Result]:
    """Yield `fetch(request)` for each request, in order. Results are dictionaries, tuples and so on of
    tensors and plain values. The processes end with the iterator, and with the thread that first advanced it.
    """
    loader = DataLoader(
        _FetchDataset(fetch),
        batch_size=None,
        sampler=requests,
        collate_fn=_identity,
        num_workers=workers.num,
        prefetch_factor=workers.prefetch if workers.num else None,
        pin_memory=workers.pin_memory,
        worker_init_fn=partial(_start_worker, os.getpid()),
        # Workers use none of torch's randomness; a seed from the global generator would change its state.
        generator=torch.Generator(),
        # Forked workers start at once and share the records; elsewhere the system's default is used.
        multiprocessing_context="fork" if workers.num and sys.platform == "linux" else None,
    )
    with _blocked_signals():
        results = _start(loader)
    try:
        for result in results:
            if isinstance(result, _Failure):
                raise result.error
            yield result
    except RuntimeError as error:
        if "DataLoader worker (pid" not in str(error):
            raise
        raise BoxcrewError(
            f"a loader process died: {first_line(error)}",
            advice="most often memory ran out: try fewer loader.workers, a smaller loader.prefetch or batch",
        ) from error
    finally:
        # Not left to the garbage collector: whoever keeps an error would keep the processes alive.
        shut_down_workers(results)


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Hold signals back, so that none reaches a process started inside before its `_start_worker` has run."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PARENT_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(loader: DataLoader[Any]) -> Iterator[Any]:
    """Start the processes without torch's SIGCHLD handler, which raises wherever the program happens to be
    when a process dies, even in the middle of a checkpoint. Waiting for a result still notices a death within
    seconds.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGCHLD"):
        return iter(loader)
    before = signal.getsignal(signal.SIGCHLD)
    results = iter(loader)
    signal.signal(signal.SIGCHLD, before if before is not None else signal.SIG_DFL)
    return results


def _identity(result: Result) -> Result:
    return result


def _start_worker(parent: int, worker: int) -> None:  # noqa: ARG001
    """Prepare a loader process; it calls this first."""
    # Ctrl-C and the signals that end a job reach the whole process group. The parent handles them and ends
    # its workers, which must last until its current step or evaluation is finished.
    for number in PARENT_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENT_SIGNALS)
    die_with(parent)
    # 0, not 1: with 1, OpenCV would wait forever for the threads of a pool that a fork does not copy.
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
