"""The commands `boxcrew train` and `boxcrew resume`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from boxcrew.api import plan_run, resume_run, run_config, train_run
from boxcrew.cli.output import make_screen, parse_settings, print_json, require
from boxcrew.core.config import Tree, read_yaml
from boxcrew.core.errors import BoxcrewError
from boxcrew.core.parent_process import LAUNCHER, die_with
from boxcrew.deploy.processes.collectives import DistributedGroup, ReplicaGroup
from boxcrew.deploy.processes.environments import read_environment
from boxcrew.train.config import RunConfig
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning.from_settings import planned_processes, planned_servers
from boxcrew.train.run.directory import run_of_stage
from boxcrew.train.run.replicas import serve, track


def train_command(words: list[str], *, as_json: bool, only_explain: bool = False) -> None:
    names, tree = parse_settings(words, positional=1)
    config = run_config(names[0] if names else None, tree)
    if only_explain:
        explained = plan_run(config, make_screen(as_json=as_json))
        if as_json:
            print_json(explained)
        return
    _run(config, partial(train_run, config, make_screen(as_json=as_json)), as_json=as_json)


def resume_command(words: list[str], *, as_json: bool) -> None:
    _, tree = parse_settings(words)
    require(tree, "run", example="boxcrew resume run=runs/detect/train")
    folder = Path(str(tree.pop("run")))
    folder = run_of_stage(folder) or folder
    work = partial(resume_run, folder, tree, make_screen(as_json=as_json))
    _run(_stored(folder, tree), work, as_json=as_json, begun_in=folder)


def _stored(folder: Path, changes: Tree) -> RunConfig | None:
    """Return the settings of a run to resume; None if it has none, which `resume_run` will report."""
    file = folder / "config.yaml"
    return RunConfig.of(read_yaml(file)).changed(changes) if file.is_file() else None


def _run(
    config: RunConfig | None,
    work: Callable[[ReplicaGroup], Outcome],
    *,
    as_json: bool,
    begun_in: Path | None = None,
) -> None:
    """Run alone or as one process of a started group; or start all planned processes and wait for them."""
    if LAUNCHER in os.environ:
        die_with(int(os.environ[LAUNCHER]))
    env = read_environment(os.environ)
    if env is None:
        num_replicas, num_servers = (1, 0) if config is None else planned_processes(config, begun_in)
        if num_replicas + num_servers > 1:
            from boxcrew.deploy.processes.launch import start_processes  # slow to import, and rarely needed

            start_processes(sys.argv[1:], num_replicas, num_servers)
            return
        group = ReplicaGroup()
    else:
        num_servers = planned_servers(config, env.size) if config is not None and env.rank == 0 else 0
        group = DistributedGroup(env, num_servers=num_servers)
    try:
        if group.is_chief:
            _finish(work(group), as_json=as_json)
        elif group.is_server:
            serve(group, Screen())
        else:
            track(group, Screen())
    except (Exception, KeyboardInterrupt) as error:
        group.report_failure(str(error) if isinstance(error, BoxcrewError) else repr(error))
        raise
    finally:
        group.close()


def _finish(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        print_json({"run": str(outcome.folder), **outcome.summary})
    if outcome.interrupted:
        sys.exit(130)
