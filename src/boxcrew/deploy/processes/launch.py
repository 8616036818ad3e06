"""Starting replicas: the same command in several processes of this host, and what is said of their end."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from boxcrew.core.errors import PREEMPTED, BoxcrewError
from boxcrew.core.parent_process import LAUNCHER, RUN_FOLDERS
from boxcrew.deploy.processes.environments import process_name
from boxcrew.deploy.processes.heartbeat import IS_LOST, RESUME_ADVICE, UNREACHABLE
from boxcrew.deploy.processes.supervisor import FailedError, LaunchSpec, StoppedError, Supervisor
from boxcrew.deploy.processes.worker import Worker

TRACEBACK = "Traceback (most recent call last)"
_INTERRUPTED = 130


class OnFailure(Protocol):
    """Called when all processes of a run have ended, with the directories that its chief has named and the
    reason. `is_own`: the chief has failed by an error of its own, which it has printed.
    """

    def __call__(self, folders: Sequence[Path], reason: str, *, is_own: bool) -> None: ...


def start_processes(
    spec: LaunchSpec, *, on_failure: OnFailure, take_output: Callable[[str], None] | None = None
) -> None:
    """Run `boxcrew` with the spec's command-line words in as many processes, and wait for them. Only the
    chief prints here; the errors of the others are shown if they fail. `take_output` gets what the chief
    wrote on stdout, which is then not shown, whether the processes fail or not.
    """
    with tempfile.TemporaryDirectory(prefix="boxcrew-") as name:
        folder = Path(name)
        os.environ[LAUNCHER] = str(os.getpid())
        os.environ[RUN_FOLDERS] = str(folder / "run_folders")
        try:
            supervisor = Supervisor(spec, folder)
            if spec.most > spec.num_replicas:
                address = f"{spec.address[0]}:{supervisor.store.port}"
                print(f"more replicas may join: boxcrew join {address}", file=sys.stderr, flush=True)
            supervisor.run()
        except FailedError as error:
            workers = sorted(error.workers, key=lambda worker: worker.ended_at)
            failures = {worker.number: _failure(worker) for worker in workers if worker.code}
            if error.reason is None and _is_preempted(failures):  # the chief has said so
                sys.exit(PREEMPTED)
            reason = error.reason or _reason(failures, error.folder, spec.num_replicas)
            code = failures[0].exitcode if reason is None else 0
            own = reason or f"replica 0 ended with exit code {code}"
            on_failure(_run_folders(), own, is_own=reason is None)
            if reason is None:
                sys.exit(code)
            raise BoxcrewError(reason, advice=RESUME_ADVICE) from None
        except StoppedError:  # by Ctrl-C and the like: passed on to the replicas, which have saved by now
            sys.exit(_INTERRUPTED)
        finally:
            if take_output:
                files = sorted(folder.glob("*/0/stdout.log"), key=lambda file: int(file.parts[-3]))
                take_output(files[-1].read_text(encoding="utf-8", errors="replace") if files else "")


def _failure(worker: Worker) -> ProcessFailure:
    assert worker.code is not None
    return ProcessFailure(local_rank=worker.number, pid=worker.pid, exitcode=worker.code, error_file="none")


def _run_folders() -> list[Path]:
    """Return the directories that the chief has named."""
    file = Path(os.environ[RUN_FOLDERS])
    return [Path(line) for line in file.read_text().splitlines()] if file.is_file() else []


def _is_preempted(failures: Mapping[int, ProcessFailure]) -> bool:
    """Return whether the processes have ended in order, because some of them were told to."""
    codes = {failure.exitcode for failure in failures.values()}
    return PREEMPTED in codes and codes <= {PREEMPTED, -signal.SIGTERM}


def _reason(failures: Mapping[int, ProcessFailure], folder: Path, num_replicas: int) -> str | None:
    """Return which process is to blame, and why; None for an error of the chief, which has printed it. Those
    of the others come from their logs, with the full traceback if there is one. A killed one has left none.
    """
    logs = {}
    for rank in failures:  # none of the chief, whose stderr is not redirected
        files = sorted(folder.rglob(f"{rank}/stderr.log"))
        logs[rank] = text = files[-1].read_text(errors="replace") if files else ""
        if TRACEBACK in text:
            print(f"{process_name(rank, num_replicas)}: {text[text.index(TRACEBACK) :]}", file=sys.stderr)
    losses = [error for text in logs.values() if (error := _error_in(text)) and IS_LOST in error]
    codes = {rank: failures[rank].exitcode for rank in sorted(failures)}  # SIGTERM ends the rest
    killed = [rank for rank, code in codes.items() if code < 0 and -code != signal.SIGTERM]
    # Whoever noticed a loss has ended both itself and the lost one; but connections also break because a
    # process was killed.
    if losses and not (killed and UNREACHABLE in losses[0]):
        return losses[0]
    if killed:
        name = process_name(killed[0], num_replicas)
        return f"{name} was killed by {signal.Signals(-codes[killed[0]]).name}"
    if 0 in codes and codes[0] not in {-signal.SIGTERM, _INTERRUPTED}:
        return None
    others = [rank for rank in failures if rank] or [0]  # the chief was only told to stop
    first = min(others, key=lambda rank: failures[rank].timestamp)
    reason = _error_in(logs[first]) or f"exit code {codes[first]}"
    return f"{process_name(first, num_replicas)} failed: {reason}"


def _error_in(text: str) -> str:
    return text.rpartition("error: ")[2].partition("\n")[0] if "error: " in text else ""
