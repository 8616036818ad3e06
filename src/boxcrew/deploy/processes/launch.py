"""Starting replicas: the same command in several processes of this host, through torch's elastic launcher."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.parent_process import LAUNCHER
from boxcrew.deploy.processes.environments import process_name
from boxcrew.deploy.processes.heartbeat import MISSED, UNREACHABLE

SAVING = 120  # seconds that replicas have to finish their step and save, when they are to stop
TRACEBACK = "Traceback (most recent call last)"
_INTERRUPTED = 130
_ADVICE = "boxcrew resume goes on from the last checkpoint"


def start_processes(words: Sequence[str], num_replicas: int, num_servers: int) -> None:
    """Runs `boxcrew` with these words in as many processes, and waits for them. Only the chief speaks here;
    what the others say is shown if they fail.
    """
    with tempfile.TemporaryDirectory(prefix="boxcrew-") as folder:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=num_replicas + num_servers,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="127.0.0.1:0",
            max_restarts=0,
            monitor_interval=0.2,
            shutdown_timeout=SAVING,
            signals_to_handle="SIGTERM,SIGINT",  # not SIGHUP, which nohup is to keep away from us
            local_addr="127.0.0.1",
            logs_specs=DefaultLogsSpecs(
                log_dir=folder, redirects=dict.fromkeys(range(1, num_replicas + num_servers), Std.ALL)
            ),
        )
        # The chief keeps the meeting place itself: where it is gone, the others notice.
        os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        os.environ[LAUNCHER] = str(os.getpid())
        logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # we tell it ourselves
        try:
            elastic_launch(config, sys.executable)("-m", "boxcrew", *words)
        except ChildFailedError as error:
            _tell_failure(error.failures, Path(folder), num_replicas)
        except SignalException:  # Ctrl-C and the like: passed on to the replicas, who have saved by now
            sys.exit(_INTERRUPTED)


def _tell_failure(failures: Mapping[int, ProcessFailure], folder: Path, num_replicas: int) -> None:
    """One that was killed could not say so. What the chief has to say it has said, of the others too.
    The last words of another are fetched from its log, and if they were a traceback, all of it.
    """
    words = {rank: _last_words(folder, rank) for rank in failures}
    for rank, text in words.items():
        if TRACEBACK in text:
            print(f"{process_name(rank, num_replicas)}: {text[text.index(TRACEBACK) :]}", file=sys.stderr)
    missed = [said for text in words.values() if (said := _error_in(text)) and MISSED in said]
    killed = [
        rank
        for rank, failure in sorted(failures.items())
        if failure.exitcode < 0 and -failure.exitcode != signal.SIGTERM  # which is how the rest are ended
    ]
    # Who noticed has ended both itself and who was missed; but connections break because one was killed.
    if missed and not (killed and UNREACHABLE in missed[0]):
        raise BoxcrewError(missed[0], advice=_ADVICE)
    if killed:
        name = process_name(killed[0], num_replicas)
        number = signal.Signals(-failures[killed[0]].exitcode).name
        raise BoxcrewError(f"{name} was killed by {number}: the run has stopped", advice=_ADVICE)
    if 0 in failures and failures[0].exitcode not in {-signal.SIGTERM, _INTERRUPTED}:
        sys.exit(failures[0].exitcode)
    others = [rank for rank in failures if rank] or [0]  # the chief was only told to stop
    rank = min(others, key=lambda one: failures[one].timestamp)
    said = _error_in(words[rank]) or f"exit code {failures[rank].exitcode}"
    raise BoxcrewError(f"{process_name(rank, num_replicas)} failed: {said}", advice=_ADVICE)


def _last_words(folder: Path, rank: int) -> str:
    """What a process that does not speak here has said in the end; nothing of the chief, who does."""
    logs = sorted(folder.rglob(f"{rank}/stderr.log"))
    return logs[-1].read_text(errors="replace") if logs else ""


def _error_in(text: str) -> str:
    return text.rpartition("error: ")[2].partition("\n")[0] if "error: " in text else ""
