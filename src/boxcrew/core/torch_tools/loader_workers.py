"""Ending the worker processes of a torch DataLoader."""

from __future__ import annotations

from collections.abc import Iterator


def shut_down_workers(results: Iterator[object]) -> None:
    """End the processes behind a DataLoader's iterator now; one without processes is left as it is."""
    shut_down = getattr(results, "_shutdown_workers", None)
    if shut_down is not None:
        shut_down()
