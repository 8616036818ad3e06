"""The socket that a page or a service listens on."""

from __future__ import annotations

import ipaddress
import socket

from boxcrew.core.errors import UsageError

BACKLOG = 1024


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """Open a socket; `UsageError` if that is not possible."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = addresses[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        problem = f"host={host} port={port}: {error.strerror}"
        raise UsageError(problem, advice="give another port=, or port=0 for any that is free") from None


def url_of(listener: socket.socket) -> str:
    """Return the URL of a socket that listens."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
