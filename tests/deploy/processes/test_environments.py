"""The environment variables of torchrun, SLURM, MPI and Kubernetes give a process its rank."""

from __future__ import annotations

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.deploy.processes.environments import ProcessEnvironment, first_host, read_environment

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "big", "MASTER_PORT": "29500"}
SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "2",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NODELIST": "node[03-05]",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-1",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"},  # in a batch script, without srun
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"WORLD_SIZE": "4"},
    ],
)
def test_a_process_that_was_started_alone(environment: dict[str, str]) -> None:
    assert read_environment(environment) is None


def test_every_launcher_is_read() -> None:
    assert read_environment(TORCHRUN) == ProcessEnvironment(rank=1, world_size=4, address="big", port=29500)
    slurm = read_environment(SLURM)
    assert slurm is not None
    assert (slurm.rank, slurm.world_size, slurm.address) == (2, 3, "node03")
    mpi = read_environment(OPEN_MPI)
    assert mpi is not None
    assert (mpi.rank, mpi.world_size, mpi.address) == (0, 2, "127.0.0.1")
    mpich = read_environment(MPICH)
    assert mpich is not None
    assert (mpich.rank, mpich.world_size) == (1, 2)


def test_all_processes_of_a_job_have_one_port_and_jobs_have_others() -> None:
    ports = {env.port for i in "012" if (env := read_environment(SLURM | {"SLURM_PROCID": i})) is not None}
    assert len(ports) == 1
    other = read_environment(SLURM | {"SLURM_JOB_ID": "78"})
    assert other is not None
    assert other.port not in ports
    explicit = read_environment(SLURM | {"MASTER_PORT": "12345", "MASTER_ADDR": "elsewhere"})
    assert explicit is not None
    assert (explicit.address, explicit.port) == ("elsewhere", 12345)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (TORCHRUN | {"RANK": "4"}, "RANK=4: there are only 4 replicas"),
        (TORCHRUN | {"RANK": "one"}, "RANK=one: not a number"),
        (TORCHRUN | {"WORLD_SIZE": "two"}, "WORLD_SIZE=two: not a number"),
        (TORCHRUN | {"MASTER_PORT": "http"}, "MASTER_PORT=http: not a port"),
        (TORCHRUN | {"MASTER_PORT": "70000"}, "MASTER_PORT=70000: not a port"),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "1"}, "RANK=1 is set, but not MASTER_ADDR"),
        (SLURM | {"SLURM_PROCID": "3"}, "SLURM_PROCID=3: there are only 3 replicas"),
        (OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "several hosts under MPI"),
        (MPICH | {"MPI_LOCALNRANKS": "1"}, "several hosts under MPI"),
    ],
)
def test_what_cannot_be_is_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_environment(environment)


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("node7", "node7"),
        ("a,b", "a"),
        ("node[03-06,9],big1", "node03"),
        ("node[9,12]", "node9"),
        ("rack[1-2]-x,c", "rack1-x"),
        ("big1,node[03-06]", "big1"),
    ],
)
def test_the_first_of_slurms_hosts(hosts: str, first: str) -> None:
    assert first_host(hosts) == first
