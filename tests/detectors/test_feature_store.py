"""Features on disk: they go on after a kill, and are never used for another network."""

from __future__ import annotations

import shutil
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.errors import BoxcrewError, UsageError
from boxcrew.core.types import Floats
from boxcrew.detectors._feature_store import FeatureStore
from boxcrew.detectors.rcnn import RcnnConfig

WIDTH = 5


def open_store(folder: Path, identity: str = "a", num_rows: int = 20) -> FeatureStore:
    return FeatureStore.open(folder, identity=identity, width=WIDTH, num_rows=num_rows)


def rows(num: int, value: float) -> Floats:
    return np.full((num, WIDTH), value, dtype=np.float32)


def test_features_come_back(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    for key, features in {"x": rows(2, 1), "y": rows(3, 2), "z": rows(0, 3)}.items():
        store.append(key, "as it was", features)
    stored = store.all_rows()
    assert list(stored) == ["x", "y", "z"]
    assert np.array_equal(stored["x"], rows(2, 1))
    assert np.array_equal(stored["y"], rows(3, 2))
    assert stored["z"].shape == (0, WIDTH)


def test_it_goes_on_after_a_kill(tmp_path: Path) -> None:
    open_store(tmp_path).append("x", "d", rows(2, 1))
    for file, half in (("features.bin", b"half of what came next"), ("images.jsonl", b'{"key": "y", "dig')):
        with (tmp_path / file).open("ab") as opened:
            opened.write(half)
    store = open_store(tmp_path)
    assert list(store.images) == ["x"]
    store.append("y", "d", rows(1, 2))
    assert np.array_equal(open_store(tmp_path).all_rows()["y"], rows(1, 2))


def test_an_image_that_has_changed_is_stored_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append("x", "before", rows(2, 1))
    store.append("y", "same", rows(1, 2))
    assert store.has("x", "before")
    assert not store.has("x", "after")
    assert not store.has("z", "before")
    store.append("x", "after", rows(3, 5))
    for opened in (store, open_store(tmp_path)):
        assert np.array_equal(opened.all_rows()["x"], rows(3, 5))
        assert np.array_equal(opened.all_rows()["y"], rows(1, 2))


@pytest.mark.parametrize("damage", ["", "{", "[]"])
def test_another_network_or_a_damaged_list_begins_anew(tmp_path: Path, damage: str) -> None:
    open_store(tmp_path).append("x", "d", rows(2, 1))
    assert open_store(tmp_path, identity="b").images == {}
    (tmp_path / "images.jsonl").write_text(damage)
    assert open_store(tmp_path).images == {}


def test_a_full_disk_is_refused_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(free=1 << 20))
    with pytest.raises(BoxcrewError, match=r"1000000 regions need 19\.1 MiB, and 1\.0 MiB are free"):
        open_store(tmp_path, num_rows=1_000_000)


def test_what_the_svms_lack_is_said_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = RcnnConfig(proposals=2000, head_width=4096)
    config.require_solvable(1, tmp_path)
    with pytest.raises(BoxcrewError, match=r"2001000000 regions need 29\.8 TiB"):
        config.require_solvable(1_000_000, tmp_path)
    monkeypatch.setitem(sys.modules, "sklearn.svm", None)
    with pytest.raises(UsageError, match="needs scikit-learn"):
        config.require_solvable(1, tmp_path)
