"""What clients, networks and operators do to a service: it answers or closes, and goes on."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from bench.serving.client import Answer, read_answer, request_bytes
from bench.serving.hostile import Attacker, Outcome, send
from tests.helpers.served import Served, served

_DETECT = "/v1/detect"
_HEALTH = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n"
_SECONDS = 20.0  # that nothing here needs


@pytest.fixture(scope="module")
def model(exported_run: Path) -> str:
    return f"run={exported_run / 'model.onnx'}"


@pytest.fixture
def connection(service: Served) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", service.port), timeout=_SECONDS) as opened:
        yield opened


def require_good(service: Served, photo: bytes) -> None:
    assert service.process.poll() is None
    assert service.ask(_DETECT, photo).status == 200


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def gauge(service: Served, name: str) -> float:
    lines = service.ask("/metrics").body.decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def is_idle(service: Served) -> bool:
    return gauge(service, "boxcrew_open_requests") == 0 and gauge(service, "boxcrew_queue_photos") == 0


def together(num: int, ask: Callable[[int], Answer | Outcome]) -> Counter[int | None]:
    """Return how often each status came, when so many clients ask at once."""
    with ThreadPoolExecutor(num) as threads:
        return Counter(answer.status for answer in threads.map(ask, range(num)))


def exchange(service: Served, content: bytes) -> Answer:
    """Return the answer to bytes on a connection of their own, of which the service waits for no more."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=_SECONDS) as opened:
        opened.sendall(content)
        return read_answer(opened)


def test_a_hundred_clients_at_once(service: Served, photo: bytes) -> None:
    content = request_bytes(_DETECT, photo)
    codes = together(100, lambda _: exchange(service, content))
    assert codes[200] > 0
    assert set(codes) <= {200, 429}
    assert codes.total() == 100
    wait_until(lambda: is_idle(service))
    require_good(service, photo)


def test_health_is_answered_while_photos_wait(service: Served, photo: bytes) -> None:
    content = request_bytes(_DETECT, photo)
    with ThreadPoolExecutor(40) as threads:
        answers = [threads.submit(exchange, service, content) for _ in range(40)]
        while not all(answer.done() for answer in answers):
            assert service.ask("/v2/health/live").status == 200
            assert service.ask("/v2/health/ready").status == 200
    assert {answer.result().status for answer in answers} <= {200, 429}


def test_clients_that_hang_up(service: Served, photo: bytes) -> None:
    content = request_bytes(_DETECT, photo)
    files = psutil.Process(service.process.pid).num_fds()
    for number in range(60):
        with socket.create_connection(("127.0.0.1", service.port)) as opened:
            # With this, closing is a reset, as when a phone is out of reach.
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            opened.sendall(content if number % 2 else content[: len(content) // 2])
            if number % 4 == 1:
                time.sleep(0.01)  # it may be in a thread by then
    wait_until(lambda: is_idle(service))
    wait_until(lambda: psutil.Process(service.process.pid).num_fds() <= files + 2)
    require_good(service, photo)


def test_a_client_that_sends_no_more_after_its_photo(service: Served, photo: bytes) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=_SECONDS) as opened:
        opened.sendall(request_bytes(_DETECT, photo))
        opened.shutdown(socket.SHUT_WR)
        assert read_answer(opened).status in {0, 200}  # it may count as a client that has gone
    wait_until(lambda: is_idle(service))
    require_good(service, photo)


def test_requests_that_do_not_wait_for_answers(connection: socket.socket, photo: bytes) -> None:
    ids = [f"request-{number}" for number in range(6)]
    connection.sendall(b"".join(request_bytes(_DETECT, photo, headers={"X-Request-Id": id_}) for id_ in ids))
    received = b""
    while received.count(b'"milliseconds"') < len(ids):
        piece = connection.recv(65536)
        assert piece
        received += piece
    assert received.count(b"HTTP/1.1 200") == len(ids)
    positions = [received.index(f'"request":"{id_}"'.encode()) for id_ in ids]
    assert positions == sorted(positions)


def test_connections_that_do_nothing(service: Served, photo: bytes) -> None:
    opened = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(150)]
    try:
        for number, each in enumerate(opened):
            each.sendall(request_bytes(_DETECT, photo)[: 10 * (number % 30)])
        require_good(service, photo)
    finally:
        for each in opened:
            each.close()
    wait_until(lambda: is_idle(service))


_POST = b"POST /v1/detect HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/jpeg\r\n"
_SMUGGLED = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"

AMBIGUOUS = {
    "length and chunks": _POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + _SMUGGLED,
    "chunks and length": _POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + _SMUGGLED,
    "two lengths": _POST + b"Content-Length: 5\r\nContent-Length: 0\r\n\r\n" + _SMUGGLED,
    "list of lengths": _POST + b"Content-Length: 5, 0\r\n\r\n" + _SMUGGLED,
    "length with a sign": _POST + b"Content-Length: +0\r\n\r\n" + _SMUGGLED,
    "hexadecimal length": _POST + b"Content-Length: 0x0\r\n\r\n" + _SMUGGLED,
    "chunks with a disguise": _POST + b"Transfer-Encoding: xchunked\r\n\r\n" + _SMUGGLED,
    "chunks that are not last": _POST + b"Transfer-Encoding: chunked, identity\r\n\r\n" + _SMUGGLED,
    "chunk of a negative size": _POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n" + _SMUGGLED,
    "chunk of an endless size": _POST + b"Transfer-Encoding: chunked\r\n\r\n%s\r\n" % (b"F" * 40) + _SMUGGLED,
    "space before a colon": _HEALTH + b"Transfer-Encoding : chunked\r\n\r\n" + _SMUGGLED,
    "folded header": b"GET / HTTP/1.1\r\n X: y\r\nHost: localhost\r\n\r\n" + _SMUGGLED,
    "two hosts": _HEALTH + b"Host: localhost\r\n\r\n" + _SMUGGLED,
    "zero in a header": _HEALTH + b"X: a\0b\r\n\r\n" + _SMUGGLED,
    "carriage return in a header": _HEALTH + b"X: a\rTransfer-Encoding: chunked\r\n\r\n" + _SMUGGLED,
    "zero in the path": b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n" + _SMUGGLED,
    "HTTP/0.9": b"GET /v2/health/live\r\n\r\n" + _SMUGGLED,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SMUGGLED,
    "TLS": b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(500) + _SMUGGLED,
}  # fmt: skip


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_what_two_servers_could_read_differently(name: str, service: Served, photo: bytes) -> None:
    """The rest of the connection is never read as another request."""
    received = b""
    with socket.create_connection(("127.0.0.1", service.port), timeout=_SECONDS) as opened:
        opened.sendall(AMBIGUOUS[name])
        try:
            while piece := opened.recv(65536):
                received += piece
        except ConnectionResetError:
            pass
    assert set(re.findall(rb"^HTTP/1.1 (\d+)", received, re.MULTILINE)) <= {b"400", b"501"}, received
    require_good(service, photo)


def test_hostile_requests(service: Served, photo: bytes) -> None:
    """Five hundred of them, from a seed: none hangs, fails or ends the service."""
    attacker = Attacker(23)
    attacks = [attacker.attack() for _ in range(500)]
    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(lambda attack: send(service.port, attack, timeout=_SECONDS), attacks))
    faults = [(outcome.status, outcome.attack) for outcome in outcomes if outcome.is_fault]
    assert not faults
    assert {outcome.status for outcome in outcomes} >= {0, 200, 400, 404, 405, 413, 415, 422}
    assert not any(b"Traceback" in outcome.body for outcome in outcomes)
    wait_until(lambda: is_idle(service))
    assert not service.log("failure")
    require_good(service, photo)


def test_a_service_that_is_stopped_and_goes_on(service: Served, photo: bytes) -> None:
    """A laptop that sleeps: who waited too long is told so, and the rest is answered."""
    impatient = request_bytes(_DETECT, photo, headers={"X-Timeout": "0.5"})
    patient = request_bytes(_DETECT, photo, headers={"X-Timeout": "30"})
    with ThreadPoolExecutor(8) as threads:
        os.kill(service.process.pid, signal.SIGSTOP)
        try:
            answers = [threads.submit(exchange, service, patient) for _ in range(4)]
            late = [threads.submit(exchange, service, impatient) for _ in range(4)]
            time.sleep(1.0)
        finally:
            os.kill(service.process.pid, signal.SIGCONT)
        assert [answer.result().status for answer in answers] == [200] * 4
        assert {answer.result().status for answer in late} <= {200, 504}  # what arrives late is on time
    require_good(service, photo)


def test_a_photo_that_waited_for_a_stopped_service_is_not_called_slow(service: Served, photo: bytes) -> None:
    """The rest of the photo was there in time; it is the service that read it too late."""
    content = request_bytes(_DETECT, photo, headers={"X-Timeout": "1.5"})
    requests = gauge(service, "boxcrew_open_requests")
    with socket.create_connection(("127.0.0.1", service.port), timeout=_SECONDS) as client:
        client.sendall(content[:-100])
        wait_until(lambda: gauge(service, "boxcrew_open_requests") > requests)
        os.kill(service.process.pid, signal.SIGSTOP)
        try:
            client.sendall(content[-100:])
            time.sleep(2.5)
        finally:
            os.kill(service.process.pid, signal.SIGCONT)
        assert read_answer(client).status == 504
    require_good(service, photo)


def test_requests_under_way_when_it_ends(model: str, photo: bytes) -> None:
    """Twenty that wait or are computed, and one whose photo is still arriving."""
    content = request_bytes(_DETECT, photo)
    with served(model) as service, ThreadPoolExecutor(20) as threads:
        address = ("127.0.0.1", service.port)
        with socket.create_connection(address, timeout=_SECONDS) as slow:
            slow.sendall(content[:-100])
            answers = [threads.submit(exchange, service, content) for _ in range(20)]
            wait_until(lambda: gauge(service, "boxcrew_open_requests") > 5 or all(a.done() for a in answers))
            accepted = gauge(service, "boxcrew_open_requests")
            service.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            slow.sendall(content[-100:])
            assert read_answer(slow).status == 200
        codes = Counter(answer.result().status for answer in answers)
        assert set(codes) <= {200, 503}
        assert codes[200] >= accepted - 1
        assert service.process.wait(_SECONDS) == 0
