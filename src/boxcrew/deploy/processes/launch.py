"""Starting replicas: the same command in several processes of this host, through torch's elastic launcher."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from boxcrew.core.errors import PREEMPTED, BoxcrewError
from boxcrew.core.parent_process import LAUNCHER, RUN_FOLDERS
from boxcrew.deploy.processes.environments import LOCALHOST, process_name
from boxcrew.deploy.processes.heartbeat import IS_LOST, RESUME_ADVICE, UNREACHABLE

TRACEBACK = "Traceback (most recent call last)"
_INTERRUPTED = 130


class OnFailure(Protocol):
    """Called when all processes of a run have ended, with the directories that its chief has named and the
    reason. `is_own`: the chief has failed by an error of its own, which it has printed.
    """

    def __call__(self, folders: Sequence[Path], reason: str, *, is_own: bool) -> None: ...


def start_processes(
    words: Sequence[str],
    num_replicas: int,
    num_servers: int,
    *,
    on_failure: OnFailure,
    take_output: Callable[[str], None] | None = None,
) -> None:
    """Run `boxcrew` with these command-line words in as many processes, and wait for them. Only the chief
    prints here; the errors of the others are shown if they fail. `take_output` gets what the chief wrote on
    stdout, which is then not shown, whether the processes fail or not.
    """
    num = num_replicas + num_servers
    redirects = dict.fromkeys(range(1, num), Std.ALL) | ({0: Std.OUT} if take_output else {})
    with tempfile.TemporaryDirectory(prefix="boxcrew-") as folder:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=num,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint=str(Path(folder) / "rendezvous"),
            rdzv_configs={"store_type": "file"},  # the launcher is alone: it needs no port
            max_restarts=0,
            monitor_interval=0.2,
            shutdown_timeout=120,  # seconds to finish a step and to save
            signals_to_handle="SIGTERM,SIGINT",  # not SIGHUP, which nohup keeps away from us
            local_addr=LOCALHOST,
            logs_specs=DefaultLogsSpecs(log_dir=folder, redirects=redirects),
        )
        # The chief runs the rendezvous store itself: if it is gone, the others notice.
        os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        os.environ[LAUNCHER] = str(os.getpid())
        os.environ[RUN_FOLDERS] = str(Path(folder) / "run_folders")
        logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # failures are shown here
        try:
            elastic_launch(config, sys.executable)("-m", "boxcrew", *words)
        except ChildFailedError as error:
            if _is_preempted(error.failures):  # the chief has said so
                sys.exit(PREEMPTED)
            reason = _reason(error.failures, Path(folder), num_replicas)
            code = error.failures[0].exitcode if reason is None else 0
            own = reason or f"replica 0 ended with exit code {code}"
            on_failure(_run_folders(), own, is_own=reason is None)
            if reason is None:
                sys.exit(code)
            raise BoxcrewError(reason, advice=RESUME_ADVICE) from None
        except SignalException:  # Ctrl-C and the like: passed on to the replicas, which have saved by now
            sys.exit(_INTERRUPTED)
        finally:
            if take_output:
                files = sorted(Path(folder).rglob("0/stdout.log"))
                take_output(files[-1].read_text(encoding="utf-8", errors="replace") if files else "")


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
