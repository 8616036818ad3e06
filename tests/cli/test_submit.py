"""`boxcrew submit`: job files that their schedulers would take, and a batch script that passes signals on."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from boxcrew.core.config import parse_words
from boxcrew.train.output.metrics import read_rows
from tests.helpers.tiny import TINY_NET

Call = Callable[..., Any]

GPU_NODE = "submit.node=2x24GB-gpu, 16 cores, 64GB"
CPU_NODE = "submit.node=4 cores, 16GB"
PODS = ("submit.image=registry/boxcrew:1", "submit.volume=photos:/data", "submit.data=/data/photos")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def submit(boxcrew: Call, tiny_set: Path) -> Call:
    """The command without submission: its report."""

    def run(scheduler: str, *words: str) -> Any:
        done = boxcrew(
            "submit", scheduler, f"data={tiny_set}", *TINY_NET, "batch=8", *words, "--dry-run", "--json"
        )
        assert done.code == 0, done.err
        return json.loads(done.out)

    return run


def objects(report: Mapping[str, Any]) -> Any:
    return yaml.safe_load(Path(report["file"]).read_text())


def settings_of(command: list[str]) -> dict[str, Any]:
    """The settings of the training that a job runs, which must be understood as they were given."""
    assert command[:2] == ["boxcrew", "train"]
    return parse_words(command[2:])[1]


def sbatch_options(script: str) -> dict[str, str]:
    """The options of a batch script as sbatch reads them: up to the first line that is no comment."""
    options = {}
    first, *lines = script.splitlines()
    assert first == "#!/bin/bash"
    for line in lines:
        if not line.startswith("#"):
            break
        if match := re.fullmatch(r"#SBATCH --([a-z-]+)(?:=(.+))?", line):
            options[match[1]] = " ".join(shlex.split(match[2] or ""))
    return options


def validated(kind: str, version: str, spec: Any) -> None:
    """Let the scheme of Kubernetes judge one of its own kinds."""
    tree = {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec}
    importlib.import_module("kubernetes_validate").validate(tree, "1.30", strict=True)


def checked(value: Any, scheme: Any, path: str = "") -> None:
    """Compare a tree with the fields that a kind of object has: nothing unknown, nothing missing."""
    if isinstance(scheme, dict):
        assert isinstance(value, dict), path
        assert not value.keys() - {key.rstrip("?") for key in scheme}, (path, value.keys())
        for key, inner in scheme.items():
            name = key.rstrip("?")
            assert key.endswith("?") or name in value, f"{path}.{name}: missing"
            if name in value:
                checked(value[name], inner, f"{path}.{name}")
    elif isinstance(scheme, list):
        assert isinstance(value, list), path
        for item in value:
            checked(item, scheme[0], path)
    else:
        assert isinstance(value, scheme), (path, value)


META = {"name": str, "namespace?": str}
JOBSET = {
    "apiVersion": str,
    "kind": str,
    "metadata": META,
    "spec": {
        "failurePolicy": {"maxRestarts": int},
        "replicatedJobs": [{"name": str, "replicas": int, "template": {"spec": dict}}],
    },
}
GROUP = {"rayStartParams": dict, "template": {"spec": dict}}
WORKERS = {"groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int}
RAYJOB = {
    "apiVersion": str,
    "kind": str,
    "metadata": META,
    "spec": {
        "entrypoint": str,
        "backoffLimit": int,
        "shutdownAfterJobFinishes": bool,
        "rayClusterSpec": {
            "rayVersion": str,
            "authOptions": {"mode": str},
            "enableInTreeAutoscaling": bool,
            "headGroupSpec": GROUP,
            "workerGroupSpecs": [WORKERS | GROUP],
        },
    },
}
SKY = {
    "name": str,
    "resources": {
        "cpus": str,
        "memory": str,
        "accelerators?": str,
        "use_spot": bool,
        "job_recovery": {"max_restarts_on_errors": int, "recover_on_exit_codes": [int]},
        "image_id?": str,
    },
    "num_nodes?": int,
    "file_mounts?": dict,
    "setup?": str,
    "run": str,
}
"""The fields that our files use, as the pages of JobSet, KubeRay and SkyPilot describe them."""


def test_a_batch_script_asks_for_what_the_plan_takes(submit: Call, tiny_set: Path) -> None:
    report = submit(
        "slurm", "out=runs/a b", "submit.nodes=2", GPU_NODE, "submit.account=lab", "submit.time=4h"
    )
    assert report["command"] == ["sbatch", "a b.sbatch"]
    script = Path("a b.sbatch").read_text()
    options = sbatch_options(script)
    assert subprocess.run(["bash", "-n", "a b.sbatch"], check=False).returncode == 0
    assert options["job-name"] == "a b"
    assert options["nodes"] == options["ntasks-per-node"] == options["gpus-per-node"] == "2"
    assert options["account"] == "lab"
    assert "partition" not in options
    assert options["signal"] == "B:TERM@60"
    assert options["requeue"] == ""
    assert options["time"] == "250"
    assert 1 <= int(options["cpus-per-task"]) <= 8
    assert options["mem"] == f"{2 * report['resources']['memory'] // 2**20}M"
    assert 1000 < 2 * report["resources"]["memory"] // 2**20 < 64_000
    command = script[script.index("boxcrew train") : script.index(" &\nstep=")].replace("\\\n", "")
    settings = settings_of(shlex.split(command))
    assert settings["data"] == str(tiny_set)
    assert settings["out"] == "runs/a b"
    assert settings["detector"] == {"name": "ssdlite", "backbone": "test_efficientnet"}
    assert "submit" not in settings


def test_one_node_starts_its_replicas_itself(submit: Call) -> None:
    report = submit("slurm", "out=a", GPU_NODE)
    options = sbatch_options(Path("a.sbatch").read_text())
    assert (options["nodes"], options["ntasks-per-node"], options["gpus-per-node"]) == ("1", "1", "2")
    assert report["resources"]["replicas"] == 2
    again = submit("slurm", "out=a", GPU_NODE)
    assert again["file"] == "a-2.sbatch"


def test_a_range_of_nodes(submit: Call) -> None:
    submit("slurm", "out=a", "submit.nodes=1:4", CPU_NODE)
    script = Path("a.sbatch").read_text()
    assert sbatch_options(script)["nodes"] == "1-4"
    assert "deploy.replicas=1:4" in script


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_jobset(submit: Call, nodes: int) -> None:
    report = submit("jobset", f"submit.nodes={nodes}", GPU_NODE, *PODS, "out=/data/runs/My_run.1")
    jobset = objects(report)
    checked(jobset, JOBSET)
    assert report["command"] == ["kubectl", "create", "-f", "My_run.1.yaml"]
    assert jobset["metadata"]["name"] == "my-run-1"
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    validated("Job", "batch/v1", job)
    num = 4 if nodes == 2 else 1
    assert (job["completions"], job["parallelism"], job["completionMode"]) == (num, num, "Indexed")
    assert job["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [75]
    pod = job["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 60
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == ("1" if nodes == 2 else "2")
    assert settings_of(container["command"])["data"] == "/data/photos"
    names = {each["name"]: each.get("value") for each in container.get("env", [])}
    if nodes == 2:
        assert names["WORLD_SIZE"] == "4"
        assert names["MASTER_ADDR"] == "my-run-1-train-0-0.my-run-1"
        assert "RANK" in names
    else:
        assert not names


def test_a_rayjob(submit: Call) -> None:
    report = submit("rayjob", "submit.nodes=1:4", CPU_NODE, *PODS, "out=/data/runs/a", "submit.namespace=lab")
    rayjob = objects(report)
    checked(rayjob, RAYJOB)
    cluster = rayjob["spec"]["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    assert (workers["minReplicas"], workers["maxReplicas"]) == (1, 4)
    assert cluster["enableInTreeAutoscaling"]
    for group in (cluster["headGroupSpec"], workers):
        validated("Pod", "v1", group["template"]["spec"])
    settings = settings_of(shlex.split(rayjob["spec"]["entrypoint"]))
    assert settings["on"] == "ray"
    assert settings["deploy"]["replicas"] == "1:4"
    assert rayjob["metadata"]["namespace"] == "lab"


def test_ray_starts_the_replicas_of_one_node(submit: Call) -> None:
    report = submit("rayjob", GPU_NODE, *PODS, "out=/data/runs/a")
    cluster = objects(report)["spec"]["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    (container,) = workers["template"]["spec"]["containers"]
    assert (workers["minReplicas"], workers["maxReplicas"]) == (2, 2)
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert not cluster["enableInTreeAutoscaling"]


def test_a_task_for_skypilot(submit: Call, tiny_set: Path) -> None:
    report = submit(
        "sky",
        "submit.nodes=2",
        GPU_NODE,
        "submit.gpu=A100",
        "out=s3://bucket/runs/a",
        "submit.setup=pip list",
    )
    task = objects(report)
    checked(task, SKY)
    assert report["command"] == ["sky", "jobs", "launch", "--yes", "a.yaml"]
    assert task["resources"]["accelerators"] == "A100:2"
    assert task["resources"]["job_recovery"]["recover_on_exit_codes"] == [75]
    (place,) = task["file_mounts"]
    assert task["file_mounts"][place] == str(tiny_set)
    assert f"data={place}" in task["run"]
    assert "out=s3://bucket/runs/a" in task["run"]
    assert subprocess.run(["bash", "-n"], input=task["run"], text=True, check=False).returncode == 0


def test_the_script_of_skypilot_gives_each_replica_its_rank(submit: Call, tmp_path: Path) -> None:
    task = objects(submit("sky", "submit.nodes=2", GPU_NODE, "submit.gpu=A100", "out=s3://bucket/a"))
    programs = tmp_path / "programs"
    shown = 'echo "$RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT" >> seen; [ "$RANK" -ne 3 ] || exit 75\n'
    write_program(programs / "boxcrew", shown)
    told = {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"}
    environment = {**os.environ, **told, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", task["run"]], env=environment, check=False)
    assert sorted(Path("seen").read_text().splitlines()) == [f"{n} of 4 at 10.0.0.1:29400" for n in (2, 3)]
    assert done.returncode == 75


def write_program(path: Path, script: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/bash\n{script}")
    path.chmod(0o755)


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """An environment in which SLURM's commands do what a batch script expects of them: a step is a process,
    the job is running, and what is begun again is written down.
    """
    programs = tmp_path / "programs"
    write_program(programs / "srun", 'while [[ "$1" == --* ]]; do shift; done\nexec "$@"\n')
    write_program(programs / "squeue", "echo ${STATE:-RUNNING}\n")
    write_program(programs / "scontrol", 'echo "$@" >> again\n')
    write_program(programs / "boxcrew", f'exec {shlex.quote(sys.executable)} -m boxcrew "$@"\n')
    return {**os.environ, "SLURM_JOB_ID": "7", "PATH": f"{programs}:{os.environ['PATH']}"}


def test_time_is_up_and_the_job_goes_on_later(submit: Call, slurm: dict[str, str]) -> None:
    submit("slurm", "out=runs/a", "steps=100000", "saver.every_steps=100000", "device=cpu", CPU_NODE)
    shell = subprocess.Popen(["bash", "a.sbatch"], env=slurm)
    try:
        until = time.monotonic() + 100
        while time.monotonic() < until and not read_rows(Path("runs/a/metrics.jsonl")):
            time.sleep(0.1)
        shell.send_signal(signal.SIGTERM)  # to the shell alone, as --signal=B: does
        assert shell.wait(60) != 0
    finally:
        shell.kill()
    assert Path("again").read_text() == "requeue 7\n"
    assert list(Path("runs/a/checkpoints").glob("*/COMMIT"))


@pytest.mark.parametrize(
    ("program", "state", "restarts", "is_begun_again"),
    [
        ("exit 75", "RUNNING", "50", True),  # a replica was preempted
        ("kill -9 $$", "RUNNING", "0", True),
        ("kill -9 $$", "RUNNING", "10", False),  # once too often
        ("exit 3", "RUNNING", "0", False),  # the data are bad, and will be
        ("exit 0", "RUNNING", "0", False),
        ("exit 75", "COMPLETING", "0", False),  # a user has cancelled it
    ],
)
def test_what_is_begun_again(
    submit: Call,
    slurm: dict[str, str],
    tmp_path: Path,
    program: str,
    state: str,
    restarts: str,
    is_begun_again: bool,
) -> None:
    submit("slurm", "out=runs/a", "steps=1", CPU_NODE)
    write_program(tmp_path / "programs" / "boxcrew", program)
    environment = {**slurm, "STATE": state, "SLURM_RESTART_COUNT": restarts}
    code = subprocess.run(["bash", "a.sbatch"], env=environment, check=False).returncode
    assert Path("again").exists() == is_begun_again
    assert (code == 0) == (program == "exit 0")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "which scheduler?"),
        (("slurn",), "did you mean 'slurm'?"),
        (("slurm",), "out= is missing"),
        (("jobset", "out=/data/a"), "submit.image= is missing"),
        (("jobset", "out=runs/a", *PODS), "out=runs/a: a job on another machine"),
        (("jobset", "out=/elsewhere/a", *PODS), "would be lost with the pod"),
        (("jobset", "out=/data/a", *PODS, "submit.nodes=1:2"), "fixed number of nodes"),
        (("jobset", "out=/data/a", PODS[0], PODS[2], "submit.volume=photos"), "submit.volume=photos"),
        (("sky", "out=runs/a"), "not a bucket"),
        (("sky", "out=s3://bucket/a", GPU_NODE), "submit.gpu= is missing"),
        (("slurm", "out=a", "submit.nodes=4:1"), "submit.nodes"),
        (("slurm", "out=a", "submit.partitoin=x"), "did you mean 'partition'?"),
        (("slurm", "out=a", "submit.nodes=2", "deploy.replicas=3", CPU_NODE), "cannot be divided"),
        (("slurm", "out=a", "submit.file=there"), "submit.file=there: exists already"),
        (("slurm", "out=a", "submit.node=4x16GB-tpu"), "can be requested, not xla:0"),
    ],
)
def test_bad_words(boxcrew: Call, tiny_set: Path, words: tuple[str, ...], message: str) -> None:
    Path("there").write_text("mine")
    done = boxcrew("submit", *words, f"data={tiny_set}", *TINY_NET, "--dry-run")
    assert done.code == 2
    assert message in done.err
    assert Path("there").read_text() == "mine"
    assert [path.name for path in Path().iterdir()] == ["there"]


def test_a_scheduler_that_is_not_installed(
    boxcrew: Call, tiny_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = boxcrew("submit", "slurm", f"data={tiny_set}", "out=a")
    assert done.code == 2
    assert "sbatch is not installed" in done.err
    assert not list(Path().iterdir())


def test_the_file_is_submitted(
    boxcrew: Call, tiny_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(tmp_path / "programs" / "sbatch", 'cp "$1" taken; exit ${CODE:-0}\n')
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:{os.environ['PATH']}")
    words = ("submit", "slurm", f"data={tiny_set}", *TINY_NET, "steps=1", CPU_NODE)
    assert boxcrew(*words, "out=a").code == 0
    assert Path("taken").read_text() == Path("a.sbatch").read_text()
    monkeypatch.setenv("CODE", "1")
    done = boxcrew(*words, "out=b")
    assert done.code == 1
    assert "ended with exit code 1" in done.err
