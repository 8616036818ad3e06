"""An S3 server on this computer, which can be told to fail: moto, behind a few lines that inject faults."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

from boxcrew.core.storage import store

Fault = Callable[[str, str], str | None]
"""`(method, path)` of a request: the status that it is answered with instead of being done, or None."""

_NO_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


class S3Server:
    """The server, its address, and what was asked of it. `fault` is asked before every request."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server: BaseWSGIServer | None = None
        self._port = 0
        self.fault: Fault | None = None
        self.after: Fault | None = None  # called after a request was done; what it returns means nothing
        self.start()

    def start(self) -> None:
        """Answer again, at the same address and with the same objects."""
        self._server = make_server("127.0.0.1", self._port, self._answer, threaded=True)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Refuse connections."""
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which a process finds it."""
        keys = dict.fromkeys(_NO_CREDENTIALS, "test")
        return {
            **keys,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def make_bucket(self, name: str) -> None:
        store._file_system("s3", os.getpid()).mkdir(name)

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Answer as `fault` says."""
        self.fault = fault
        try:
            yield
        finally:
            self.fault = None

    def _answer(self, environ: Mapping[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        method, path = str(environ["REQUEST_METHOD"]), str(environ["PATH_INFO"])
        status = self.fault(method, path) if self.fault is not None else None
        if status is not None:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            body = f"<Error><Code>{status.partition(' ')[2].replace(' ', '')}</Code></Error>".encode()
            start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [body]
        answer: Iterable[bytes] = self._app(environ, start_response)
        if self.after is not None:
            self.after(method, path)
        return answer


@contextmanager
def serving() -> Iterator[S3Server]:
    """Run a server, which this process and those that it starts find."""
    server = S3Server()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        store._file_system.cache_clear()
        yield server
    server.stop()


@contextmanager
def without_credentials() -> Iterator[None]:
    """Let this process have no keys, and no other way to get some."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _NO_CREDENTIALS:
            patch.delenv(name)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("HOME", "/nonexistent")
        store._file_system.cache_clear()
        yield
    store._file_system.cache_clear()
