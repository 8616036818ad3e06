"""A cluster of Ray: that of RAY_ADDRESS, or one on this machine for as long as a command runs."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from boxcrew.core.errors import UsageError

ADDRESS = "RAY_ADDRESS"
_CONNECT = 10.0  # seconds to reach the machine of the cluster
_STORE_BYTES = 100 * 1024**2  # photos and weights do not pass through Ray's store of objects


def require_ray(extras: str) -> None:
    """Raise `UsageError` if Ray is not installed."""
    if find_spec("ray") is None:
        raise UsageError("ray is not installed", advice=f"pip install 'boxcrew[{extras}]'")


@contextmanager
def cluster(**options: Any) -> Iterator[None]:
    """Join the cluster of RAY_ADDRESS, or have one on this machine until the end. `options` are those of
    `ray.init`. `UsageError` if there is no cluster at the address.
    """
    import ray

    address = os.environ.get(ADDRESS)
    # What Ray reports about its use to its makers is off, unless the user has decided.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address:
        _join(address, options)
    else:
        # Ray would write a token into the home of the user.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        # Ray gives its processes the lowest priority but four: beside any other program they would starve.
        os.environ.setdefault("RAY_worker_niceness", "0")
        ray.init(address="local", include_dashboard=False, object_store_memory=_STORE_BYTES, **options)
    try:
        yield
    finally:
        ray.shutdown()


def is_own() -> bool:
    """Return whether there is a cluster of this command alone, which ends with it."""
    return not os.environ.get(ADDRESS)


def _join(address: str, options: dict[str, Any]) -> None:
    import ray

    try:
        _require_listening(address)
        ray.init(address=address, **options)
    except (OSError, RuntimeError, ValueError):
        advice = "is it running, and are RAY_AUTH_MODE=token and its RAY_AUTH_TOKEN set here too?"
        raise UsageError(f"{ADDRESS}={address}: this cluster does not answer", advice=advice) from None


def _require_listening(address: str) -> None:
    """Raise `OSError` if nothing listens at HOST:PORT, for which Ray itself would look for 20 minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT).close()
