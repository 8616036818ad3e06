"""The log of the service: a JSON object on a line of stderr for each request, without photos and names."""

from __future__ import annotations

import json
import sys
import time
import traceback
from typing import TextIO


class ServiceLog:
    """Writes lines. What cannot be written is dropped: a full disk or a closed terminal stops no request."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr

    def write(self, event: str, **values: object) -> None:
        """Write what happened, with its time."""
        line = json.dumps({"time": _now(), "event": event, **values}, ensure_ascii=True, default=str)
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            return

    def failure(self, event: str, error: BaseException, **values: object) -> None:
        """Write an error with where it happened, which is not sent to clients."""
        self.write(event, **values, error=repr(error), traceback=traceback.format_exception(error))


def _now() -> str:
    seconds = time.time()
    parts = time.gmtime(seconds)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', parts)}.{int(seconds % 1 * 1000):03d}Z"
