"""Requests that no service would like, from a seed: the same seed sends the same bytes.

Each is what one client writes to its socket. The service may answer it with 2xx where it happens to be
harmless, with 4xx, 501, 503 or 504, or close the connection; it may not hang, fail or end.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from bench.serving.client import read_answer, request_bytes
from bench.serving.hostile_words import HEADER_VALUES, HEADERS, JSON, PROTOCOL, ROUTES, VALUES
from bench.serving.photo_files import BOMBS, good_photos

ALLOWED_SERVER_ERRORS: Final = frozenset({501, 503, 504})
"""Codes from 500 on that are no failures: not a method of HTTP, too busy, too late."""

_DETECT = "/v1/detect"


@dataclass(frozen=True, kw_only=True)
class Attack:
    """The doings of one client: it writes, and then reads, or turns away."""

    kind: str
    content: bytes
    reads: bool = True


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The answer that a client got: a status, 0 for a closed connection, or None for nothing in time."""

    attack: Attack
    status: int | None
    body: bytes = b""

    @property
    def is_fault(self) -> bool:
        """The answer to whether the service has hung or failed."""
        if self.status is None:
            return True
        return self.status >= 500 and self.status not in ALLOWED_SERVER_ERRORS


def send(port: int, attack: Attack, *, timeout: float = 20.0) -> Outcome:
    """Send an attack over a connection of its own."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(attack.content)
            if not attack.reads:
                return Outcome(attack=attack, status=0)
            if attack.kind in _HALF_CLOSED:
                connection.shutdown(socket.SHUT_WR)
            answer = read_answer(connection, has_body=not attack.content.startswith(b"HEAD "))
            return Outcome(attack=attack, status=answer.status, body=answer.body)
    except TimeoutError:
        return Outcome(attack=attack, status=None)
    except (ConnectionError, ValueError, IndexError):
        return Outcome(attack=attack, status=0)


class Attacker:
    """Makes attacks from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._photos = list(good_photos().values())

    def attack(self) -> Attack:
        """Return the next attack."""
        kind, make = self._random.choice(list(_KINDS.items()))
        return make(self, kind)

    def mutated(self, kind: str) -> Attack:
        return Attack(
            kind=kind, content=request_bytes(_DETECT, self._mutate(self._random.choice(self._photos)))
        )

    def bomb(self, kind: str) -> Attack:
        width, height = (self._random.choice((0, 1, 7, 30_000, 65_535, 2**31 - 1)) for _ in range(2))
        make = self._random.choice(BOMBS)
        return Attack(kind=kind, content=request_bytes(_DETECT, make(width, height)))

    def noise(self, kind: str) -> Attack:
        return Attack(
            kind=kind, content=request_bytes(_DETECT, self._random.randbytes(self._random.randrange(5000)))
        )

    def query(self, kind: str) -> Attack:
        names = ("score", "format", "model", "url", "", "score[]", "x" * 2000)
        pairs = [f"{self._choose(names)}={self._value()}" for _ in range(self._random.randrange(1, 6))]
        return Attack(kind=kind, content=request_bytes(f"{_DETECT}?{'&'.join(pairs)}", self._photos[0]))

    def headers(self, kind: str) -> Attack:
        headers = {
            self._choose(HEADERS): self._choose(HEADER_VALUES) for _ in range(self._random.randrange(1, 5))
        }
        return Attack(kind=kind, content=request_bytes(_DETECT, self._photos[0], headers=headers))

    def route(self, kind: str) -> Attack:
        method = self._choose(
            ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "get")
        )
        body = self._random.choice((None, b"", b"{}", self._photos[0]))
        return Attack(kind=kind, content=request_bytes(self._choose(ROUTES), body, method=method))

    def form(self, kind: str) -> Attack:
        name = self._choose(
            ("a.jpg", "../../x", "", "x" * 9000, '"', "a\0b", "\r\nX: y", "ü", "a.jpg%00.png")
        )
        part = f'--cut\r\nContent-Disposition: form-data; name="f"; filename="{name}"\r\n\r\n'.encode()
        body = part + self._random.choice(self._photos) + b"\r\n--cut--\r\n"
        body = (
            self._mutate(body) if self._random.random() < 0.7 else part * self._random.randrange(1, 60) + body
        )
        headers = {
            "Content-Type": f"multipart/form-data; boundary={self._choose(('cut', 'cu', '', 'cut' * 99))}"
        }
        return Attack(kind=kind, content=request_bytes(_DETECT, body, headers=headers))

    def json_body(self, kind: str) -> Attack:
        body = self._choose(JSON).encode("utf-8", "surrogatepass")
        path = self._choose(
            ("/v2/models/model/infer", "/predict", "/setup", "/v1/models/model/reload", _DETECT)
        )
        if self._random.random() < 0.3:
            body = self._mutate(body)
        return Attack(
            kind=kind, content=request_bytes(path, body, headers={"Content-Type": "application/json"})
        )

    def protocol(self, kind: str) -> Attack:
        content = self._choose_bytes(PROTOCOL)
        return Attack(kind=kind, content=self._mutate(content) if self._random.random() < 0.3 else content)

    def cut(self, kind: str) -> Attack:
        """Return a request that is not sent to its end."""
        content = request_bytes(_DETECT, self._random.choice(self._photos))
        return Attack(kind=kind, content=content[: self._random.randrange(1, len(content))])

    def hang_up(self, kind: str) -> Attack:
        """Return a request whose client does not wait for the answer."""
        content = request_bytes(_DETECT, self._random.choice(self._photos))
        return Attack(kind=kind, content=content, reads=False)

    def _mutate(self, content: bytes) -> bytes:
        """Return bytes with a few of them changed, lost, repeated or new."""
        data = bytearray(content)
        for _ in range(self._random.choice((1, 1, 2, 5, 20))):
            at, num = self._random.randrange(len(data) + 1), self._random.choice((1, 1, 2, 4, 64))
            change = self._random.randrange(5)
            if change == 0:
                data[at : at + num] = self._random.randbytes(num)
            elif change == 1:
                del data[at : at + num]
            elif change == 2:
                data[at:at] = data[at : at + num] * self._random.choice((1, 2, 50))
            elif change == 3:
                data[at:at] = self._choose_bytes((b"\0", b"\xff", b"\xff\xd9", b"\r\n", b"IEND", b"\xff" * 8))
            else:
                del data[at:]
        return bytes(data)

    def _value(self) -> str:
        return self._choose(VALUES).encode().decode("latin-1")

    def _choose(self, values: tuple[str, ...]) -> str:
        return self._random.choice(values)

    def _choose_bytes(self, values: tuple[bytes, ...]) -> bytes:
        return self._random.choice(values)


_HALF_CLOSED = frozenset({"cut", "protocol"})
"""After these the client says that it sends no more: a service need not wait for the rest."""

_KINDS: Mapping[str, Callable[[Attacker, str], Attack]] = {
    "mutated photo": Attacker.mutated,
    "bomb": Attacker.bomb,
    "noise": Attacker.noise,
    "query": Attacker.query,
    "headers": Attacker.headers,
    "route": Attacker.route,
    "form": Attacker.form,
    "json": Attacker.json_body,
    "protocol": Attacker.protocol,
    "cut": Attacker.cut,
    "hang-up": Attacker.hang_up,
}
