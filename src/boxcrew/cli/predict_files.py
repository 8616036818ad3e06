"""The output of `boxcrew predict`: a folder of its own, and one JSON document."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from boxcrew.cli.output import Output
from boxcrew.core.errors import BoxcrewError, UsageError
from boxcrew.core.lock_owner import LOCK_FILES
from boxcrew.runtime.engine_facts import EngineFacts
from boxcrew.train.run.directory import locked_folder


class _Prediction(Protocol):
    def to_json(self) -> dict[str, Any]: ...


_P = TypeVar("_P", bound=_Prediction)
_Added_contra = TypeVar("_Added_contra", contravariant=True)


class Files(Protocol[_Added_contra]):
    """Files that predictions are added to; they are complete after `close`."""

    @property
    def contents(self) -> str: ...  # for people: what there is in the folder
    def add(self, result: _Added_contra) -> None: ...
    def close(self) -> None: ...


@contextmanager
def output_folder(out: Path | None, default: Path, info: Callable[[str], None]) -> Iterator[Path]:
    """Create `out`, or a new folder runs/<default>, before anything is computed; it is removed if it stays
    empty. `UsageError` if it cannot be written to, or something is in it.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(locked_folder(out, default, info))
        except UsageError as error:
            advice = error.advice or "give a directory that can be written to with out=DIR"
            raise UsageError(error.message, advice=advice) from None
        if any(path.name not in LOCK_FILES for path in folder.iterdir()):
            raise UsageError(f"out={folder}: not empty", advice="give a directory that does not exist yet")
        yield folder


def write_results(
    results: Iterable[_P],
    folder: Path,
    open_files: Callable[[], Files[_P]],
    out: Output,
    show: Callable[[_P], None],
    engine: EngineFacts,
) -> int:
    """Write each result as soon as it is there, keep none, and return their number. However this ends, the
    files and the JSON document are complete; without results there are none.
    """
    num = 0
    out.note(engine.sentence())
    with _terminated_as_exit(), ExitStack() as stack:
        for result in results:
            if num == 0:
                files = _begin(stack, folder, open_files, out)
                document = out.document.open_array({"out": str(folder), "engine": engine.tree()}, "results")
                stack.callback(document.close)
            num += 1
            with _writing(folder):
                files.add(result)
            document.add(result.to_json())
            show(result)
    return num


def _begin(stack: ExitStack, folder: Path, open_files: Callable[[], Files[_P]], out: Output) -> Files[_P]:
    with _writing(folder):
        files = open_files()

    def end() -> None:
        with _writing(folder):
            files.close()
        out.info(f"results: {folder} ({files.contents})")

    stack.callback(end)
    return files


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = "free some disk space, or give another directory with out=DIR"
        raise BoxcrewError(
            f"{folder}: cannot be written to: {error.strerror or error}", advice=advice
        ) from None


@contextmanager
def _terminated_as_exit() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that files are completed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
