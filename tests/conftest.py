"""What every test may ask for."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import hypothesis
import pytest

from tests.helpers import once
from tests.helpers.once import MakeOnce
from tests.helpers.tiny import TINY

# Before torch is imported: waiting OpenMP threads must not fight with loader workers and child processes.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Tests share the cores already: second threads of theirs would only wait for each other. Plans set their own.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Processes with another home would each list all fonts of the machine, for some seconds.
os.environ.setdefault("MPLCONFIGDIR", str(Path.home() / ".cache" / "matplotlib"))


# How long an example takes says nothing here: other tests and other people use the same cores.
hypothesis.settings.register_profile(
    "shared_machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("shared_machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slow tests, so that processes that share the work end at about the same time."""
    items.sort(key=lambda item: "integration" not in item.path.parts)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets that stands beside the checkout, or in BOXCREW_SHARED_DATA."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("BOXCREW_SHARED_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"needs the real data sets, looked for in {folder} (set BOXCREW_SHARED_DATA)")
    return folder


@pytest.fixture(scope="session", autouse=True)
def ctrl_c() -> None:
    """Interrupts, as in any program: processes that pytest starts to share the work ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def common(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of files that all processes have in common that share the tests."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def home(common: Path) -> Path:
    """The home for processes that tests start. All processes that share the tests have the same."""
    folder = common / "home"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def make_once(common: Path) -> MakeOnce:
    """`(name, make)`: a folder that `make` fills in one of the processes that share the tests. All of them
    read it, so it is not to be changed.
    """
    return partial(once.make_once, common / "made_once")


@pytest.fixture(scope="session", autouse=True)
def caches(home: Path) -> Iterator[None]:
    """What scans find and networks cost is kept with the other files of the tests, not in the user's home."""
    folder = home / ".cache" / "boxcrew"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("boxcrew.data.checks.scan.cache_folder", lambda name: folder / name)
        patch.setattr("boxcrew.data.detection.opening.cache_folder", lambda name: folder / name)
        patch.setattr("boxcrew.data.proposals.store.cache_folder", lambda name: folder / name)
        patch.setattr("boxcrew.core.storage.copies.cache_folder", lambda name: folder / name)
        patch.setattr("boxcrew.data.detection.formats.packed.cache_folder", lambda name: folder / name)
        for user in ("hardware.speed", "plan.observed", "tasks.frechet_features", "train.planning.workload"):
            patch.setattr(f"boxcrew.{user}.cache_folder", lambda name: folder / name)
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs end without their plots, which take longer than all else in a run of a few steps."""
    monkeypatch.setattr("boxcrew.api.runs._draw", lambda outcome: None)


@pytest.fixture(scope="session")
def tiny_set(make_once: MakeOnce) -> Path:
    """A VOC set of a few `shelf` scenes on disk: 8 to train on, 4 for val, 2 for test. Not to be changed."""
    from boxcrew.data.detection.formats.shelf import ShelfSource
    from boxcrew.data.detection.source import open_source
    from boxcrew.data.detection.writers import write_source

    def write(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ShelfSource, "num_images", {"train": 8, "val": 4, "test": 2})
            write_source(open_source("shelf"), folder / "photos", format="voc")

    return make_once("tiny_set", write) / "photos"


@pytest.fixture(scope="session")
def exported_run(tiny_run: Path, make_once: MakeOnce) -> Path:
    """A folder with exported files of that run: model.onnx, model-nms.onnx. Not to be changed."""
    from boxcrew.export.formats.onnx import onnx_model
    from boxcrew.export.graphs import ExportGraph
    from boxcrew.export.run import export
    from boxcrew.export.settings import ExportConfig
    from boxcrew.train.output.screen import Screen

    def write(folder: Path) -> None:
        def kept(graph: ExportGraph) -> bytes:
            content = onnx_model(graph)
            (folder / "traced.onnx").write_bytes(content)
            return content

        for name, settings in (("model-nms", {"nms": True}), ("model", {"triton": True})):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("boxcrew.export.costs._SECONDS", 0.001)
                patch.setattr("boxcrew.export.run.onnx_model", kept)  # the last one stays
                out = folder / f"{name}.onnx"
                export(ExportConfig.of({"run": tiny_run, "out": out, **settings}), Screen())

    return make_once("exported_run", write)


@pytest.fixture
def traced(exported_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's exporter, which takes seconds, is not asked again for the network of `tiny_run`."""
    content = (exported_run / "traced.onnx").read_bytes()
    monkeypatch.setattr("boxcrew.export.run.onnx_model", lambda graph: content)


@pytest.fixture(scope="session")
def tiny_run(tiny_set: Path, make_once: MakeOnce) -> Path:
    """A finished run of a few steps on it, without plots. Not to be changed: copy it first."""
    from boxcrew.api import run_config
    from boxcrew.core.config import parse_words
    from boxcrew.train.output.screen import Screen
    from boxcrew.train.run import train

    def run(folder: Path) -> None:
        words = (*TINY, f"data={tiny_set}", f"out={folder / 'train'}", "steps=3", "loader.workers=0")
        train(run_config("starter", parse_words(words)[1]), Screen())

    return make_once("tiny_run", run) / "train"
