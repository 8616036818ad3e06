"""`boxcrew train … on=ray`: the same command, in as many processes of a cluster as are wanted."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from pathlib import Path

from boxcrew.cli.output import Output
from boxcrew.core.config import split_words
from boxcrew.core.errors import UsageError
from boxcrew.core.ray_cluster import cluster, require_ray
from boxcrew.core.storage.address import Location, Url
from boxcrew.core.storage.store import Store
from boxcrew.plan.layouts import num_servers
from boxcrew.plan.request import ReplicaRange
from boxcrew.train.config import RunConfig
from boxcrew.train.run.directory import reserve_folder

_DECIDED = frozenset({"on", "out", "name", "json", "debug"})
"""Words that the replicas do not get as they were typed."""


def train_on_ray(words: Sequence[str], config: RunConfig, out: Output) -> None:
    """Train on the cluster until the end, and exit as a training on this machine would."""
    if num_servers(config.deploy):
        raise UsageError(
            "deploy.strategy=parameter_server: not with on=ray", advice="deploy.strategy=ddp or fsdp"
        )
    require_ray("train,ray")
    from boxcrew.deploy.processes.on_ray.launch import RayJob, run_on_ray
    from boxcrew.deploy.processes.on_ray.process import OUT

    # Lines of workers are passed on by ourselves, those of the chief alone.
    with out.stdout_for_document(), cluster(log_to_driver=False, logging_level=logging.ERROR):
        replicas, resources = _asked_for(config)
        location = _location(config)
        document: list[str] = []

        def show(where: int, line: str) -> None:
            if where == OUT and out.as_json:
                document.append(line)
            else:
                print(line, file=sys.stdout if where == OUT else sys.stderr, flush=True)

        job = RayJob(
            words=_passed_on(words, config, location, replicas, as_json=out.as_json),
            replicas=replicas,
            resources=resources,
            folder=None if isinstance(location, Url) else str(location),
            cwd=str(Path.cwd()),
            progress=_progress(location),
            show=show,
            info=out.info,
        )
        try:
            code = run_on_ray(job)
        finally:
            out.document.take("\n".join(document))
            if isinstance(location, Path):
                with suppress(OSError):  # it is not empty: something was trained
                    location.rmdir()
    if code:
        sys.exit(code)


def _asked_for(config: RunConfig) -> tuple[ReplicaRange, dict[str, float]]:
    """Return how many replicas are wanted, and what each takes. By default there is one on each GPU of the
    cluster, or without any one on each machine.
    """
    from boxcrew.deploy.processes.on_ray.slots import nodes, resources_of_each

    machines, wanted = nodes(), config.deploy.replicas
    gpus = int(sum(machine.get("GPU", 0) for machine in machines))
    takes_gpus = gpus > 0 and not config.device.startswith("cpu")
    if isinstance(wanted, ReplicaRange):
        num = wanted
    else:
        each = (gpus if takes_gpus else max(1, len(machines))) if wanted == "auto" else wanted
        num = ReplicaRange(each, each)
    return num, resources_of_each(machines, num.least, gpu=takes_gpus)


def _location(config: RunConfig) -> Location:
    """Return where the run is, which all starts of it are told; a directory is created."""
    if isinstance(config.out, Url):
        return config.out
    return reserve_folder(config.out, Path(config.task.folder) / (config.name or "train"))


def _passed_on(
    words: Sequence[str], config: RunConfig, location: Location, replicas: ReplicaRange, *, as_json: bool
) -> list[str]:
    """Return the words of the command that every replica runs."""
    passed = [
        text if key is None else f"{key}={text}"
        for key, text in split_words(words)
        if key is None or (key not in _DECIDED and key != "deploy.replicas")
    ]
    deploy = config.deploy
    is_exact = (
        deploy.strategy in {"auto", "ddp"} and deploy.logical_clones == "auto" and deploy.shares is None
    )
    if replicas.least < replicas.most and is_exact:  # the same bits, however many there are
        passed.append(f"deploy.logical_clones={replicas.most}")
    count = str(replicas) if replicas.least < replicas.most else str(replicas.most)
    options = [option for option in ("--debug",) if option in sys.argv] + (["--json"] if as_json else [])
    return ["train", *passed, f"deploy.replicas={count}", f"out={location}", *options]


def _progress(location: Location) -> Callable[[], Hashable]:
    """Return a function whose value changes with every new checkpoint of the run."""
    if isinstance(location, Url):
        store = Store(location)
        return lambda: frozenset(name for name in store.objects() if "checkpoints/" in name)
    return lambda: frozenset(os.fspath(path) for path in location.glob("**/checkpoints/*/COMMIT"))
