"""The commands `boxcrew train` and `boxcrew resume`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Literal

from boxcrew.api import plan_run, resume_run, run_config, train_run
from boxcrew.cli.document import INTERRUPTED
from boxcrew.cli.output import Output, parse_settings, require
from boxcrew.cli.taking_part import taking_part
from boxcrew.compare.trainings import SETTINGS
from boxcrew.core.config import Config
from boxcrew.core.errors import PREEMPTED, UsageError
from boxcrew.core.parent_process import LAUNCHER, die_with
from boxcrew.core.storage.address import Url, location_of
from boxcrew.deploy.processes.collectives import DistributedGroup, ReplicaGroup
from boxcrew.deploy.processes.elastic_group import ElasticGroup
from boxcrew.deploy.processes.environments import host_and_port, read_environment
from boxcrew.deploy.processes.membership import own_number
from boxcrew.plan.plan import Plan
from boxcrew.plan.request import ReplicaRange
from boxcrew.train.bucket.records import local_run, records
from boxcrew.train.config import RunConfig
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning.from_settings import planned_processes, planned_servers
from boxcrew.train.run.directory import require_run, run_of_stage
from boxcrew.train.run.record import plan_before
from boxcrew.train.run.replicas import run_parameter_server, train_replica
from boxcrew.train.run.status import record_failure
from boxcrew.train.run.stored_settings import resumed_settings
from boxcrew.tune.record import STUDY


class OnConfig(Config):
    """The setting of a command that says where it trains, and is none of the run."""

    on: Literal["machine", "ray"] = "machine"
    """Where it trains: in processes of this machine, or on a cluster of Ray."""


def train_command(words: list[str], out: Output, *, only_explain: bool) -> None:
    _leave_document_to_chief(out)
    names, tree = parse_settings(words, positional=1)
    on = OnConfig.of({"on": tree.pop("on")} if "on" in tree else {}).on
    config = run_config(names[0] if names else None, tree)
    if on == "ray":
        if only_explain:
            raise UsageError("--explain: explains a training on this machine", advice="leave on=ray out")
        from boxcrew.cli.train_on_ray import train_on_ray

        train_on_ray(words, config, out)
    elif only_explain:
        out.result(plan_run(config, out))
    else:
        _run(config, partial(train_run, config, out), out)


def resume_command(words: list[str], out: Output) -> None:
    _leave_document_to_chief(out)
    _, tree = parse_settings(words)
    require(tree, "run", example="boxcrew resume run=runs/detect/train")
    run = location_of(str(tree.pop("run")))
    folder = local_run(run, records)
    if (folder / SETTINGS).is_file():
        from boxcrew.cli.compare import resume_comparison

        resume_comparison(folder, tree, out)
        return
    if (folder / STUDY).is_file():
        advice = f"boxcrew tune resume study={folder}"
        raise UsageError(f"run={folder}: a study, not a run", advice=advice)
    folder = run_of_stage(folder) or folder
    run = run if isinstance(run, Url) else folder
    # Not what `resume_run` would warn of: it does so, in the process of the chief.
    config = resumed_settings(require_run(folder), tree, lambda _: None)
    _run(config, partial(resume_run, run, tree, out), out, before=plan_before(folder, config))


def _leave_document_to_chief(out: Output) -> None:
    """Let only the first of several started processes print a JSON document, of a result or an error."""
    env = read_environment(os.environ)
    if env is not None and env.rank > 0:
        out.document.is_wanted = False


def _run(
    config: RunConfig,
    work: Callable[[ReplicaGroup], Outcome],
    out: Output,
    before: Plan | None = None,
) -> None:
    """Run alone or as one process of a started group; or start all planned processes and wait for them.
    `before` is the plan of a run to be resumed.
    """
    if LAUNCHER in os.environ:
        die_with(int(os.environ[LAUNCHER]))
    elif "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun's agent starts others in our place if it is killed
        die_with(os.getppid())
    group = _own_group(config)
    if group is None:
        num_replicas, num_servers = planned_processes(config, before)
        if num_replicas + num_servers > 1 or _can_grow(config):
            _launch(config, num_replicas, num_servers, out)
            return
        group = ReplicaGroup()
    preempted = False
    with taking_part(group):
        if group.is_chief:
            outcome = work(group)
            out.result({"run": str(outcome.url or outcome.folder), **outcome.summary})
            if outcome.interrupted:
                sys.exit(PREEMPTED if outcome.preempted else INTERRUPTED)
        elif group.is_server:
            run_parameter_server(group, Screen())
        else:
            preempted = train_replica(group, Screen())
    if preempted:
        group.wait_for_chief()
        sys.exit(PREEMPTED)


def _own_group(config: RunConfig) -> ReplicaGroup | None:
    """Return the group of processes that this one was started in; None if it was started alone."""
    env = read_environment(os.environ)
    if env is None:
        return None
    if (member := own_number()) is not None:
        return ElasticGroup(env, member)
    num_servers = planned_servers(config, env.world_size) if env.rank == 0 else 0
    return DistributedGroup(env, num_servers=num_servers)


def _can_grow(config: RunConfig) -> bool:
    """Return whether replicas may join a run that begins with one."""
    replicas, clones = config.deploy.replicas, config.deploy.logical_clones
    return isinstance(replicas, ReplicaRange) and replicas.most > 1 and clones != "auto" and clones > 1


def _launch(config: RunConfig, num_replicas: int, num_servers: int, out: Output) -> None:
    """Start the processes of a run on this host, and wait for them."""
    from boxcrew.deploy.processes.launch import start_processes  # slow to import, and rarely needed
    from boxcrew.deploy.processes.supervisor import LaunchSpec

    replicas = config.deploy.replicas
    spec = LaunchSpec(
        words=sys.argv[1:],
        num_replicas=num_replicas,
        num_servers=num_servers,
        most=replicas.most if isinstance(replicas, ReplicaRange) else num_replicas,
        restarts=config.deploy.restarts,
        address=host_and_port(config.deploy.listen, setting="deploy.listen="),
        takes_output=out.as_json,
    )
    start_processes(spec, on_failure=record_failure, take_output=out.document.take if out.as_json else None)
