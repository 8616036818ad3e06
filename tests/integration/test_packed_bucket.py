"""Training from a packed set in a bucket is the training from the files, also when the bucket fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from boxcrew.core.config import to_yaml
from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.storage.address import Url
from boxcrew.core.storage.store import Store
from boxcrew.data.detection.packing import pack
from boxcrew.data.detection.source import open_source
from boxcrew.train.config import RunConfig
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import resume
from tests.helpers.forked import UNDRAWN, boxcrew
from tests.helpers.runs import newest_tensors, require_equal, require_same_run
from tests.helpers.s3 import S3Server

Run = Callable[..., Outcome]
IMPATIENT = """
from boxcrew.data.images import remote
from boxcrew.data.detection.formats import packed
remote.PATIENCE, remote._PAUSES, packed._TRIED_SHARDS = 0.5, (0.1, 0.1), 1
"""
SHARD = 20_000


@pytest.fixture
def packed(photos: Path, bucket: Url) -> Url:
    pack(open_source(photos), bucket / "photos", shard_bytes=SHARD)
    return bucket / "photos"


@pytest.mark.parametrize("workers", [0, 2])
def test_it_is_the_training_from_the_files(
    workers: int, whole: Path, packed: Url, tmp_path: Path, run: Run
) -> None:
    run(packed, tmp_path / "run", loader={"workers": workers})
    require_equal(newest_tensors(whole), newest_tensors(tmp_path / "run"))


def test_in_blocks_workers_change_nothing(packed: Url, tmp_path: Path, run: Run, whole: Path) -> None:
    data = {"path": packed, "order": "blocks"}
    for workers in (0, 2):
        run(packed, tmp_path / f"run{workers}", data=data, loader={"workers": workers})
    require_equal(newest_tensors(tmp_path / "run0"), newest_tensors(tmp_path / "run2"))


def test_blocks_need_shards(photos: Path, tmp_path: Path, run: Run) -> None:
    with pytest.raises(UsageError, match=r"data.order=blocks: .* has no shards"):
        run(photos, tmp_path / "run", data={"path": str(photos), "order": "blocks"})


def test_a_killed_run_goes_on_elsewhere(
    whole: Path, packed: Url, tmp_path: Path, config: Callable[..., RunConfig], s3: S3Server
) -> None:
    """It is killed while it reads, and goes on with nothing in the cache: bit for bit the run from files."""
    settings, out = tmp_path / "settings.yaml", tmp_path / "run"
    settings.write_text(to_yaml(config(packed, out, data={"path": packed, "disk": 0})))
    words = ("train", str(settings))
    process = boxcrew(*words, first=UNDRAWN, cwd=tmp_path, HOME=str(tmp_path / "first"))

    def kill(method: str, path: str) -> str | None:
        if path.endswith(".tar") and (out / "checkpoints" / "00000003" / "COMMIT").exists():
            os.kill(process.pid, signal.SIGKILL)
        return None

    with s3.failing(kill):
        assert process.wait() == -signal.SIGKILL
    resumed = boxcrew("resume", f"run={out}", first=UNDRAWN, cwd=tmp_path, HOME=str(tmp_path / "second"))
    _, err = resumed.communicate()
    assert resumed.returncode == 0, err
    require_same_run(whole, out)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bucket_that_goes_away_ends_the_run_with_one_error(
    workers: int, packed: Url, tmp_path: Path, config: Callable[..., RunConfig], s3: S3Server
) -> None:
    """s3_gone_mid_read: no sample is left out, and the run can be resumed."""
    settings, out = tmp_path / "settings.yaml", tmp_path / "run"
    settings.write_text(
        to_yaml(config(packed, out, data={"path": packed, "disk": 0}, loader={"workers": workers}))
    )
    read: list[str] = []

    def gone(method: str, path: str) -> str | None:
        if path.endswith(".tar"):
            read.append(path)
        return "403 Forbidden" if len(read) > 20 else None

    words = ("train", str(settings))
    with s3.failing(gone):
        process = boxcrew(*words, first=IMPATIENT + UNDRAWN, cwd=tmp_path, HOME=str(tmp_path / "home"))
        _, err = process.communicate()
    assert process.returncode == 1
    assert "asked again for" in err
    assert "Traceback" not in err
    assert err.count("error:") == 1
    assert "resume the run when the storage answers" in err
    assert json.loads((out / "status.json").read_text())["state"] == "failed"


def test_data_that_changed_between_restarts_is_said(
    packed: Url, bucket: Url, photos: Path, tmp_path: Path, run: Run
) -> None:
    """data_changed_between_restarts: the same names and boxes, but the bytes of an image are others."""
    run(packed, tmp_path / "run", steps=4)
    changed = tmp_path / "changed"
    shutil.copytree(photos, changed)
    image = next(changed.rglob("*.png"))
    image.write_bytes(image.read_bytes() + b"\0")
    for name in Store(packed).objects():
        Store(packed).delete(name)
    pack(open_source(changed), packed, shard_bytes=SHARD)
    resume(tmp_path / "run", {"steps": 8, "data": {"disk": "1GiB"}}, Screen())
    assert "the data has changed since this run began" in (tmp_path / "run" / "train.log").read_text()


def test_truncated_shards_are_found_before_the_run_begins(packed: Url, tmp_path: Path, run: Run) -> None:
    shard = Store(packed).read("train-000001.tar")
    Store(packed).write("train-000001.tar", shard[:-600])
    with pytest.raises(DataError, match=r"train-000001.tar has .* it is cut short"):
        run(packed, tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
