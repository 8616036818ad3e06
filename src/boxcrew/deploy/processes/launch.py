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

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.parent_process import LAUNCHER
from boxcrew.deploy.processes.environments import process_name
from boxcrew.deploy.processes.heartbeat import IS_LOST, RESUME_ADVICE, UNREACHABLE

TRACEBACK = "Traceback (most recent call last)"
_INTERRUPTED = 130


def start_processes(
    words: Sequence[str],
    num_replicas: int,
    num_servers: int,
    *,
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
            rdzv_endpoint="127.0.0.1:0",
            max_restarts=0,
            monitor_interval=0.2,
            shutdown_timeout=120,  # seconds to finish a step and to save
            signals_to_handle="SIGTERM,SIGINT",  # not SIGHUP, which nohup keeps away from us
            local_addr="127.0.0.1",
            logs_specs=DefaultLogsSpecs(log_dir=folder, redirects=redirects),
        )
        # The chief runs the rendezvous store itself: if it is gone, the others notice.
        os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        os.environ[LAUNCHER] = str(os.getpid())
        logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # failures are shown here
        try:
            elastic_launch(config, sys.executable)("-m", "boxcrew", *words)
        except ChildFailedError as error:
            _raise_failure(error.failures, Path(folder), num_replicas)
        except SignalException:  # Ctrl-C and the like: passed on to the replicas, which have saved by now
            sys.exit(_INTERRUPTED)
        finally:
            if take_output:
                files = sorted(Path(folder).rglob("0/stdout.log"))
                take_output(files[-1].read_text(encoding="utf-8", errors="replace") if files else "")


def _raise_failure(failures: Mapping[int, ProcessFailure], folder: Path, num_replicas: int) -> None:
    """Raise an error that names the process to blame. The chief has printed its own error already; those of
    the others come from their logs, with the full traceback if there is one. A killed one has left none.
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
        raise BoxcrewError(losses[0], advice=RESUME_ADVICE)
    if killed:
        name = process_name(killed[0], num_replicas)
        number = signal.Signals(-codes[killed[0]]).name
        raise BoxcrewError(f"{name} was killed by {number}: the run has stopped", advice=RESUME_ADVICE)
    if 0 in codes and codes[0] not in {-signal.SIGTERM, _INTERRUPTED}:
        sys.exit(codes[0])
    others = [rank for rank in failures if rank] or [0]  # the chief was only told to stop
    first = min(others, key=lambda rank: failures[rank].timestamp)
    reason = _error_in(logs[first]) or f"exit code {codes[first]}"
    raise BoxcrewError(f"{process_name(first, num_replicas)} failed: {reason}", advice=RESUME_ADVICE)


def _error_in(text: str) -> str:
    return text.rpartition("error: ")[2].partition("\n")[0] if "error: " in text else ""
