"""Free TCP ports of this machine."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a TCP port of the loopback interface that is free at this moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
