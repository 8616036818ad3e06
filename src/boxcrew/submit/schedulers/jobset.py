"""A JobSet of Kubernetes: one pod for each replica, or one pod that starts all replicas of a node itself."""

from __future__ import annotations

from pathlib import Path

from boxcrew.core.config import Tree
from boxcrew.core.errors import PREEMPTED
from boxcrew.submit.schedulers._base import PORT, SCHEDULERS, PlannedJob, Scheduler, Submission
from boxcrew.submit.schedulers._pods import (
    CONTAINER,
    container,
    data_of,
    kubernetes_name,
    metadata,
    pod,
    require_pods,
    to_text,
)
from boxcrew.submit.settings import SubmitConfig

_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


class JobSet(Scheduler):
    program, suffix = "kubectl", ".yaml"

    def check(self, submission: Submission) -> None:
        require_pods(submission)

    def text(self, job: PlannedJob) -> str:
        return to_text(
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "metadata": metadata(job.submission),
                "spec": {
                    # All pods begin again if one has failed: they go on from the newest checkpoint.
                    "failurePolicy": {"maxRestarts": job.settings.restarts},
                    "replicatedJobs": [
                        {"name": CONTAINER, "replicas": 1, "template": {"spec": _job_spec(job)}}
                    ],
                },
            }
        )

    def command(self, file: Path, settings: SubmitConfig) -> list[str]:  # noqa: ARG002  the same for all
        return ["kubectl", "create", "-f", str(file)]


def _job_spec(job: PlannedJob) -> Tree:
    """Return the specification of the batch Job that has the pods."""
    num = job.resources.tasks * job.settings.node_range.most
    training = container(
        job, CONTAINER, command=job.command(data_of(job.submission)), **_environment(job, num)
    )
    # A replica that was told to leave has saved: its pod is made anew, which is no failure.
    codes = {"containerName": CONTAINER, "operator": "In", "values": [PREEMPTED]}
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    return {
        "completionMode": "Indexed",
        "completions": num,
        "parallelism": num,
        "backoffLimit": 0,
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onExitCodes": codes},
                {"action": "Ignore", "onPodConditions": disrupted},
            ]
        },
        "template": {"spec": pod(job, [training], restartPolicy="Never")},
    }


def _environment(job: PlannedJob, num: int) -> Tree:
    """Return what tells replicas in several pods who they are, and where they find each other."""
    if num == 1:
        return {}
    name = kubernetes_name(job.submission.name)
    values = {
        "WORLD_SIZE": str(num),
        "MASTER_ADDR": f"{name}-{CONTAINER}-0-0.{name}",
        "MASTER_PORT": str(PORT),
    }
    rank = {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}}
    return {"env": [rank, *({"name": key, "value": value} for key, value in values.items())]}


SCHEDULERS.register("jobset")(JobSet())
