"""Requests that are refused: each with a code that fits and advice, and the service goes on."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.helpers.bad_photos import ANSWERED, REFUSED, photo
from tests.helpers.served import Answer, Served, form, served

GOOD = photo()
DETECT = "/v1/detect"
MAX_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Bad:
    """A request, and the codes that may answer it."""

    codes: set[int]
    path: str = DETECT
    body: bytes | None = GOOD
    method: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def in_form(body: bytes, codes: set[int], boundary: str = "cut") -> Bad:
    return Bad(codes=codes, body=body, headers={"Content-Type": f"multipart/form-data; boundary={boundary}"})


def part(head: str, content: bytes = GOOD) -> bytes:
    return b"--cut\r\n" + head.encode() + b"\r\n\r\n" + content + b"\r\n"


FILE = 'Content-Disposition: form-data; name="photo"; filename="a.jpg"'
END = b"--cut--\r\n"

BAD = {
    "no such route": Bad(codes={404}, path="/v1/detects"),
    "slash at the end": Bad(codes={404}, path="/v1/detect/"),
    "path outside": Bad(codes={404}, path="/static/../../../etc/passwd", body=None),
    "encoded path outside": Bad(codes={404}, path="/static/..%2f..%2f..%2fetc%2fpasswd", body=None),
    "get": Bad(codes={405}, body=None),
    "put": Bad(codes={405}, method="PUT"),
    "delete": Bad(codes={405}, method="DELETE", body=None),
    "unknown method": Bad(codes={405}, method="BREW"),
    "post to the models": Bad(codes={405}, path="/v1/models"),
    "unknown model": Bad(codes={404}, path=f"{DETECT}?model=nobody"),
    "path as a model": Bad(codes={404}, path=f"{DETECT}?model=../../etc/passwd"),
    "unknown version": Bad(codes={404}, path=f"{DETECT}?model=model@0123456789ab"),
    "short version": Bad(codes={404}, path=f"{DETECT}?model=model@"),
    "unknown sample": Bad(codes={404}, path="/v1/models/model/samples/0", body=None),
    "sample by path": Bad(codes={404}, path="/v1/models/model/samples/..%2f..%2fx", body=None),
    "huge sample": Bad(codes={404}, path=f"/v1/models/model/samples/{'9' * 3000}", body=None),
    "score is a word": Bad(codes={400}, path=f"{DETECT}?score=high"),
    "score is nan": Bad(codes={400}, path=f"{DETECT}?score=nan"),
    "score is infinite": Bad(codes={400}, path=f"{DETECT}?score=inf"),
    "score above 1": Bad(codes={400}, path=f"{DETECT}?score=1.5"),
    "score below 0": Bad(codes={400}, path=f"{DETECT}?score=-0.1"),
    "score twice": Bad(codes={400}, path=f"{DETECT}?score=0.1&score=0.2"),
    "score is empty": Bad(codes={400}, path=f"{DETECT}?score="),
    "unknown format": Bad(codes={400}, path=f"{DETECT}?format=xml"),
    "unknown setting": Bad(codes={400}, path=f"{DETECT}?treshold=0.5"),
    "url instead of a photo": Bad(codes={400}, path=f"{DETECT}?url=http://169.254.169.254/"),
    "no body": Bad(codes={400}, body=b""),
    "json": Bad(codes={415}, body=b"{}", headers={"Content-Type": "application/json"}),
    "form of a page": Bad(
        codes={415}, body=b"a=b", headers={"Content-Type": "application/x-www-form-urlencoded"}
    ),
    "gzip": Bad(codes={415}, headers={"Content-Encoding": "gzip"}),
    "strange encoding": Bad(codes={415}, headers={"Content-Encoding": "\xff\xfe"}),
    "timeout is a word": Bad(codes={400}, headers={"X-Timeout": "soon"}),
    "timeout is nan": Bad(codes={400}, headers={"X-Timeout": "nan"}),
    "timeout of a year": Bad(codes={400}, headers={"X-Timeout": "3e7"}),
    "timeout below 0": Bad(codes={400}, headers={"X-Timeout": "-1"}),
    "id with spaces": Bad(codes={400}, headers={"X-Request-Id": "a b"}),
    "id that is long": Bad(codes={400}, headers={"X-Request-Id": "a" * 65}),
    "id in other letters": Bad(codes={400}, headers={"X-Request-Id": "\xe4"}),
    "foreign host": Bad(codes={400}, headers={"Host": "evil.example"}),
    "foreign host that looks like ours": Bad(codes={400}, headers={"Host": "127.0.0.1.evil.example"}),
    "host that is none": Bad(codes={400}, headers={"Host": "[::1"}),
    "foreign page": Bad(codes={400}, headers={"Origin": "http://evil.example"}),
    "page without an origin": Bad(codes={400}, headers={"Origin": "null"}),
    "too large": Bad(codes={413}, body=bytes(MAX_BYTES + 1)),
    "negative length": Bad(codes={400}, headers={"Content-Length": "-1"}),
    "length is a word": Bad(codes={400}, headers={"Content-Length": "many"}),
    "form without a boundary": Bad(codes={400}, headers={"Content-Type": "multipart/form-data"}),
    "form with an endless boundary": Bad(
        codes={400}, headers={"Content-Type": f"multipart/form-data; boundary={'b' * 5000}"}
    ),
    "form with another boundary": in_form(part(FILE) + END, {400}, boundary="other"),
    "form that is cut off": in_form(part(FILE), {400}),
    "form cut within a photo": in_form(part(FILE)[:-300], {400}),
    "form without parts": in_form(END, {400}),
    "form that is no form": in_form(GOOD, {400}),
    "form of an empty file": in_form(part(FILE, b"") + END, {400}),
    "form with a field": in_form(part('Content-Disposition: form-data; name="score"', b"1") + END, {400}),
    "part without a name": in_form(part("Content-Type: image/jpeg") + END, {400}),
    "part with many headers": in_form(part("X: 1\r\n" * 99 + FILE) + END, {400}),
    "part with a long header": in_form(part(f"X: {'1' * 20_000}\r\n{FILE}") + END, {400}),
    "form in a form": in_form(
        part(f"{FILE}\r\nContent-Type: multipart/mixed; boundary=in", b"--in\r\n\r\n--in--\r\n") + END, {415}
    ),
    "too many files": in_form(part(FILE) * 17 + END, {413}),
    "thousands of files": in_form(part(FILE, b"x") * 20_000 + END, {413}),
    "picture of two photos": Bad(
        codes={400}, path=f"{DETECT}?format=image", body=form({"a": GOOD, "b": GOOD})[0],
        headers=form({})[1],
    ),
    "one of two is bad": in_form(part(FILE) + part(FILE, b"text") + END, {415}),
    **{f"photo: {name}": Bad(codes=codes, body=content) for name, (content, codes) in REFUSED.items()},
}  # fmt: skip


def send(service: Served, bad: Bad) -> Answer:
    return service.ask(bad.path, bad.body, method=bad.method, headers=bad.headers)


def require_good(service: Served) -> None:
    assert service.ask(DETECT, GOOD).status == 200


def require_refusal(answer: Answer, codes: set[int]) -> None:
    assert answer.status in codes, (answer.status, answer.body[:300])
    content = answer.json
    assert set(content) == {"error", "advice", "request"}
    assert content["error"]
    assert content["advice"]
    assert content["request"] == answer.headers["x-request-id"]
    for secret in ("Traceback", "/work", "/tmp", "site-packages", ".py", "exported_run", "cv2"):
        assert secret not in answer.body.decode()


@pytest.mark.parametrize("name", BAD)
def test_bad_requests(name: str, service: Served) -> None:
    start = time.perf_counter()
    require_refusal(send(service, BAD[name]), BAD[name].codes)
    assert time.perf_counter() - start < 10
    require_good(service)


@pytest.mark.parametrize("name", ANSWERED)
def test_unusual_photos(name: str, service: Served) -> None:
    answer = service.ask(DETECT, ANSWERED[name])
    assert answer.status == 200, answer.body
    assert sum(answer.json["results"][0]["milliseconds"].values()) < 5000


def chunks(num_bytes: int) -> Iterator[bytes]:
    for _ in range(num_bytes // 65536):
        yield bytes(65536)


def test_a_body_without_a_length_is_counted(service: Served) -> None:
    require_refusal(service.ask(DETECT, chunks(MAX_BYTES + 65536)), {413})
    require_good(service)


def test_names_of_files_are_made_harmless(service: Served) -> None:
    names = {
        "../../etc/passwd": "passwd",
        "C:\\Windows\\x.jpg": "x.jpg",
        "a\x07b": "a�b",
        "n" * 3000: "n" * 120,
        "..": "image",
        "<script>.jpg": "<script>.jpg",
    }
    for sent, expected in names.items():
        body, headers = form({sent: GOOD})
        answer = service.ask(DETECT, body, headers=headers)
        assert answer.status == 200, answer.body
        assert answer.json["results"][0]["name"] == expected
    body = part('Content-Disposition: form-data; name="f"; filename="x"').replace(b'"x"', b'"\xff\xfe.jpg"')
    answer = service.ask(DETECT, body + END, headers=form({})[1])
    assert answer.status == 200


def raw(service: Served, data: bytes, *, pause: float = 0.0, seconds: float = 10.0) -> bytes:
    """Return what comes back for bytes that are not HTTP, or sent slowly."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=seconds) as connection:
        size = len(data) if pause == 0 else 100
        received = b""
        try:
            for start in range(0, len(data), size):
                connection.sendall(data[start : start + size])
                time.sleep(pause)
            while piece := connection.recv(65536):
                received += piece
        except ConnectionError:
            pass
        return received


POST = b"POST /v1/detect HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/jpeg\r\n"
NOT_HTTP = {
    "garbage": b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(300) + b"\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "header without a colon": b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "giant header": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    "flood of headers": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 50_000 + b"\r\n",
    "giant target": b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "unknown transfer": POST + b"Transfer-Encoding: gzip\r\n\r\nab",
    "countless chunks": POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 5000,
    "broken chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nnot a number\r\n",
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_HTTP)
def test_what_is_not_http(name: str, service: Served) -> None:
    received = raw(service, NOT_HTTP[name])
    assert not received or received.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501")), received[:200]
    require_good(service)


def test_health_is_asked_by_any_name(service: Served) -> None:
    answer = raw(service, b"GET /v2/health/ready HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert service.ask("/v2/health/live", headers={"Host": "10.0.0.7:8000"}).status == 200


def test_a_slow_body_is_not_awaited(service: Served) -> None:
    start = time.perf_counter()
    slow = POST + b"X-Timeout: 0.3\r\nContent-Length: 5000\r\n\r\n" + GOOD
    received = raw(service, slow, pause=0.02)
    assert received.startswith(b"HTTP/1.1 408")
    assert time.perf_counter() - start < 8
    require_good(service)


def test_slow_headers_are_not_awaited(service: Served) -> None:
    with (
        socket.create_connection(("127.0.0.1", service.port), timeout=20) as silent,
        socket.create_connection(("127.0.0.1", service.port), timeout=20) as slow,
    ):
        slow.sendall(b"GET / HTTP/1.1\r\nHost:")
        assert silent.recv(100) == b""
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")
    require_good(service)


def test_a_client_that_goes_away_is_forgotten(service: Served) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            connection.sendall(POST + b"Content-Length: 9000\r\n\r\n" + GOOD[:100])
    for _ in range(200):
        if "boxcrew_open_requests 0.0" in service.ask("/metrics").body.decode():
            break
        time.sleep(0.02)
    else:
        pytest.fail("requests of clients that have gone are still counted")
    require_good(service)


def test_memory_stays(service: Served) -> None:
    hostile = [
        BAD[name] for name in ("too large", "photo: png bomb in its header", "photo: png with a text bomb")
    ]
    process = psutil.Process(service.process.pid)
    for _ in range(2):
        for bad in hostile:
            send(service, bad)
    before = process.memory_info().rss
    for _ in range(5):
        for bad in hostile:
            send(service, bad)
    assert process.memory_info().rss < before + 30 * 1024 * 1024


@pytest.fixture(scope="module")
def guarded(exported_run: Path) -> Iterator[Served]:
    """A service that wants a token."""
    with served(
        f"run={exported_run / 'model.onnx'}", environment={"BOXCREW_TOKEN": "correct-horse"}
    ) as running:
        yield running


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer wrong-horse", "Basic correct-horse", "correct-horse", "Bearer \xe4\xe4"]
)
def test_wrong_tokens(header: str, guarded: Served) -> None:
    answer = guarded.ask(DETECT, GOOD, headers={"Authorization": header} if header else {})
    require_refusal(answer, {401})
    assert answer.headers["www-authenticate"] == "Bearer"


def test_the_right_token(guarded: Served) -> None:
    headers = {
        "Authorization": "Bearer correct-horse",
        "Host": "photos.example",
        "Origin": "http://x.example",
    }
    assert guarded.ask(DETECT, GOOD, headers=headers).status == 200
    assert guarded.ask("/v2/health/ready").status == 200
    assert guarded.ask("/v1/models").status == 401
    assert guarded.ask("/metrics").status == 401
    assert "correct-horse" not in "".join(guarded.lines)
