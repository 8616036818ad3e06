"""A RayJob of KubeRay: a cluster of Ray for one training, with as many workers as there is room for."""

from __future__ import annotations

import shlex
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from boxcrew.core.config import Tree
from boxcrew.submit.schedulers._base import SCHEDULERS, PlannedJob, Scheduler, Submission
from boxcrew.submit.schedulers._pods import container, data_of, metadata, pod, require_pods, to_text
from boxcrew.submit.settings import SubmitConfig

_TESTED = "2.60.0"
_HEAD = {"cpu": "2", "memory": "4Gi"}
"""What Ray's own processes and the one that watches the training take."""


class RayJob(Scheduler):
    program, suffix, is_elastic, starts_replicas = "kubectl", ".yaml", True, True

    def check(self, submission: Submission) -> None:
        require_pods(submission)

    def text(self, job: PlannedJob) -> str:
        least, most = job.replicas
        words = [*job.command(data_of(job.submission), states_replicas=True), "on=ray"]
        return to_text(
            {
                "apiVersion": "ray.io/v1",
                "kind": "RayJob",
                "metadata": metadata(job.submission),
                "spec": {
                    "entrypoint": shlex.join(words),
                    "backoffLimit": job.settings.restarts,
                    "shutdownAfterJobFinishes": True,
                    "rayClusterSpec": {
                        "rayVersion": _ray_version(),
                        "authOptions": {"mode": "token"},
                        "enableInTreeAutoscaling": least < most,
                        "headGroupSpec": _head(job),
                        "workerGroupSpecs": [_workers(job, least, most)],
                    },
                },
            }
        )

    def command(self, file: Path, settings: SubmitConfig) -> list[str]:  # noqa: ARG002  the same for all
        return ["kubectl", "create", "-f", str(file)]


def _head(job: PlannedJob) -> Tree:
    """Return the pod that computes nothing itself."""
    head = {
        **container(job, "ray-head"),
        "resources": {"requests": dict(_HEAD), "limits": dict(_HEAD)},
    }
    return {"rayStartParams": {"num-cpus": "0"}, "template": {"spec": pod(job, [head])}}


def _workers(job: PlannedJob, least: int, most: int) -> Tree:
    return {
        "groupName": "replicas",
        "replicas": most,
        "minReplicas": least,
        "maxReplicas": most,
        "rayStartParams": {},
        "template": {"spec": pod(job, [container(job, "ray-worker")])},
    }


def _ray_version() -> str:
    """Return the version of Ray here, which should be that of the image; else the one that was tried."""
    try:
        return version("ray")
    except PackageNotFoundError:
        return _TESTED


SCHEDULERS.register("rayjob")(RayJob())
