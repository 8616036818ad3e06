"""`boxcrew serve`: what it refuses, and what it does before it serves."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from pathlib import Path

import pytest

from boxcrew.cli import served_files as module
from boxcrew.cli.main import main
from boxcrew.cli.sample_photos import write_samples
from boxcrew.cli.served_files import served_files
from boxcrew.core.errors import UsageError
from boxcrew.serve.models import samples_folder
from boxcrew.serve.settings import ServeConfig
from tests.helpers.copies import copied


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.delenv("BOXCREW_TOKEN", raising=False)
    monkeypatch.setattr(sys, "argv", ["boxcrew", "serve", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert isinstance(stop.value.code, int)
    return stop.value.code


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "give either run= or runs="),
        (["run=a", "runs=b"], 2, "give either run= or runs="),
        (["run=nowhere"], 2, "no such run or file"),
        (["run=."], 2, "is not an exported file"),
        (["run=a", "host=0.0.0.0"], 2, "clients have to send a token"),
        (["run=a", "host=192.168.1.5"], 2, "clients have to send a token"),
        (["run=a", "host=::"], 2, "clients have to send a token"),
        (["run=a", "token=short"], 2, "at least 8"),
        (["run=a", "token=with space in it"], 2, "without spaces"),
        (["run=a", "port=70000"], 2, "port"),
        (["run=a", "timeout=soon"], 2, "not a duration"),
        (["run=a", "prot=8000"], 2, "did you mean 'port'"),
        (["run=cut.onnx"], 4, "its end is missing"),
        (["run=foreign.onnx"], 4, "not a file that boxcrew has exported"),
        (["run=whole.onnx", "int8=true"], 2, "is exported already"),
        (["run=whole.onnx", "engine=abacus"], 2, "no such engine"),
    ],
)
def test_what_is_refused(
    words: list[str],
    code: int,
    message: str,
    exported_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    content = (exported_run / "model.onnx").read_bytes()
    (tmp_path / "whole.onnx").write_bytes(content)
    (tmp_path / "cut.onnx").write_bytes(content[:-9])
    (tmp_path / "foreign.onnx").write_bytes(b"\x08\x09" * 100)
    monkeypatch.chdir(tmp_path)
    assert run([*words, *(["port=0"] if "port=" not in str(words) else [])], monkeypatch) == code
    assert message in capsys.readouterr().err


def test_a_port_that_is_taken(
    exported_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = [f"run={exported_run / 'model.onnx'}", f"port={taken.getsockname()[1]}"]
        assert run(words, monkeypatch) == 2
    assert "Address already in use" in capsys.readouterr().err


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The processes that would export a run, and what they would do."""
    made: list[tuple[str, ...]] = []

    def export(*words: str) -> None:
        made.append(words)
        if words[1] == "export":
            out = Path(words[3].removeprefix("out="))
            out.parent.mkdir(exist_ok=True)
            out.touch()

    monkeypatch.setattr(module, "_in_child", export)
    return made


def files(path: Path, **settings: object) -> list[Path]:
    config = ServeConfig.of({"run": str(path), **settings})
    return [source.path for source in served_files(config)]


def test_a_run_is_exported_once(tiny_run: Path, tmp_path: Path, calls: list[tuple[str, ...]]) -> None:
    shelf = tmp_path / "shelf"
    copied(tiny_run, shelf)
    usual = shelf / "export" / "model.onnx"
    assert files(shelf) == [usual]
    assert calls[0] == ("boxcrew", "export", f"run={shelf}", f"out={usual}")
    assert calls[1][0] == "boxcrew.cli.sample_photos"
    assert files(shelf, int8=True) == [shelf / "export" / "model-int8.onnx"]
    samples_folder(usual).mkdir()
    calls.clear()
    assert files(shelf) == [usual]
    assert not calls


def test_new_weights_are_exported_beside_the_old(
    tiny_run: Path, tmp_path: Path, calls: list[tuple[str, ...]]
) -> None:
    shelf = tmp_path / "shelf"
    copied(tiny_run, shelf)
    (old,) = files(shelf)
    weights = shelf / "weights" / "best.safetensors"
    os.utime(weights, (old.stat().st_mtime + 10,) * 2)
    (new,) = files(shelf)
    assert new != old
    assert new.parent == old.parent
    os.utime(new, (old.stat().st_mtime + 20,) * 2)
    assert files(shelf) == [new]
    assert [words[1] for words in calls].count("export") == 2


def test_names_are_unique(exported_run: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shutil.copy(exported_run / "model.onnx", tmp_path / name / "my model.onnx")
    config = ServeConfig.of({"runs": f"{tmp_path / 'a/my model.onnx'},{tmp_path / 'b/my model.onnx'}"})
    sources = served_files(config)
    assert [source.name for source in sources] == ["my-model", "my-model-2"]


def test_samples_are_photos_of_the_validation_split(tiny_run: Path, tmp_path: Path) -> None:
    write_samples(tiny_run, tmp_path / "samples")
    names = sorted(path.name for path in (tmp_path / "samples").iterdir())
    assert names == ["0.jpg", "1.jpg", "2.jpg", "3.jpg"]


def test_a_run_without_its_data_has_no_samples(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(tiny_run, tmp_path / "shelf")
    config = tmp_path / "shelf" / "config.yaml"
    config.write_text(config.read_text().replace("path: ", "path: /nowhere"))
    write_samples(tmp_path / "shelf", tmp_path / "samples")
    assert not list((tmp_path / "samples").iterdir())
    assert "no sample photos" in capsys.readouterr().err


def test_a_child_that_fails_has_said_why() -> None:
    with pytest.raises(SystemExit) as stop:
        module._in_child("boxcrew", "nothing")
    assert stop.value.code not in {0, None}


def test_loopback_needs_no_token() -> None:
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        assert ServeConfig.of({"run": "a", "host": host}).token is None
    with pytest.raises(UsageError):
        ServeConfig.of({"run": "a", "host": "example.com"})
