"""The pods of a training, which all kinds of jobs on Kubernetes have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

from boxcrew.core.config import Tree
from boxcrew.core.errors import UsageError
from boxcrew.submit.schedulers._base import GRACE, PlannedJob, Submission, is_url, require_reachable
from boxcrew.submit.settings import SubmitConfig

CONTAINER = "train"
_MIB = 1024**2
_LONGEST = 40  # letters of a name: Kubernetes adds to it, and hosts have at most 63


def require_pods(submission: Submission) -> None:
    """Raise `UsageError` unless it is known which image runs, and where it finds data and run."""
    settings = submission.settings
    if settings.image is None:
        raise UsageError("submit.image= is missing", advice="an image that has boxcrew[train] (and its data)")
    mount = _volume(settings)[1] if settings.volume else None
    for key, place in (("submit.data", data_of(submission)), ("out", submission.out)):
        advice = "give a URL, or a path in submit.volume=CLAIM:/data"
        require_reachable(place, key, advice)
        is_kept = is_url(place) or (mount is not None and f"{place}/".startswith(f"{mount}/"))
        if key == "out" and not is_kept:
            raise UsageError(f"out={place}: would be lost with the pod", advice=advice)


def data_of(submission: Submission) -> str:
    """Return where the job finds the data."""
    return submission.settings.data or submission.data


def kubernetes_name(name: str) -> str:
    """Return a name that Kubernetes takes."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower())[:_LONGEST].strip("-")
    return plain if plain[:1].isalpha() else f"run-{plain}".rstrip("-")


def metadata(submission: Submission) -> Tree:
    named = {"name": kubernetes_name(submission.name)}
    namespace = submission.settings.namespace
    return named if namespace is None else {**named, "namespace": namespace}


def container(job: PlannedJob, name: str, **more: Any) -> Tree:
    """Return a container with all that a task takes."""
    limits = {"cpu": str(job.resources.cores), "memory": f"{job.resources.memory // _MIB}Mi"}
    if job.resources.gpus:
        limits["nvidia.com/gpu"] = str(job.resources.gpus)
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - where loader processes pass on batches
    if job.settings.volume:
        mounts.append({"name": "data", "mountPath": _volume(job.settings)[1]})
    return {
        "name": name,
        "image": job.settings.image,
        **more,
        "resources": {"requests": dict(limits), "limits": limits},
        "volumeMounts": mounts,
    }


def pod(job: PlannedJob, containers: Sequence[Tree], **more: Any) -> Tree:
    """Return the specification of a pod with these containers."""
    volumes: list[Tree] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    if job.settings.volume:
        claim = _volume(job.settings)[0]
        volumes.append({"name": "data", "persistentVolumeClaim": {"claimName": claim}})
    return {
        **more,
        "terminationGracePeriodSeconds": GRACE,
        "containers": list(containers),
        "volumes": volumes,
    }


def to_text(tree: Tree) -> str:
    return yaml.dump(tree, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=200)


class _Plain(yaml.SafeDumper):
    """A writer of YAML that repeats a value instead of referring to it."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  the signature of PyYAML
        return True


def _volume(settings: SubmitConfig) -> tuple[str, str]:
    claim, _, mount = (settings.volume or "").partition(":")
    if not claim or not mount.startswith("/") or mount == "/":
        raise UsageError(
            f"submit.volume={settings.volume}: not a volume",
            advice="write CLAIM:/data, a claim and a directory",
        )
    return claim, mount.rstrip("/")
