"""The files of schedulers. Each is one module, registered in `SCHEDULERS`: `slurm` a batch script,
`jobset` and `rayjob` objects of Kubernetes with the pods of `_pods`, `sky` a task of SkyPilot.
"""

from boxcrew.submit.schedulers._base import GRACE, SCHEDULERS, PlannedJob, Scheduler, Submission, is_url

__all__ = ["GRACE", "SCHEDULERS", "PlannedJob", "Scheduler", "Submission", "is_url"]
