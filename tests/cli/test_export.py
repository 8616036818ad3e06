"""`boxcrew export`, as it is called."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from boxcrew.cli.main import main
from boxcrew.core.units import counted
from tests.helpers.copies import copied

Run = Callable[..., int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("boxcrew.export.costs._SECONDS", 0.001)

    def call(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["boxcrew", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0)

    return call


@pytest.mark.usefixtures("traced")
def test_a_run_is_exported_then_used(
    run: Run, tiny_run: Path, tiny_set: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "train"
    copied(tiny_run, folder)
    assert run("export", f"run={folder}", "--json") == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    file = folder / "export" / "model.onnx"
    assert report["file"] == str(file)
    assert f"proof: 4 of {counted(4, 'photo')} with the same result as torch" in err
    assert "one sample on one thread" in err
    assert run("val", f"run={file}", f"data={tiny_set}", "--json") == 0
    assert "AP" in json.loads(capsys.readouterr().out)["best"]["numbers"]
    found = tmp_path / "found"
    source = tiny_set / "JPEGImages"
    assert run("predict", f"run={file}", f"source={source}", f"out={found}", "score=0.01", "format=voc") == 0
    assert (found / "predictions.json").is_file()
    assert any((found / "voc" / "Annotations").iterdir())
    capsys.readouterr()
    assert run("export", f"run={folder}") == 5
    assert "model.onnx: exists already" in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["torch", "onnxruntime", "openvino", "auto"])
def test_what_computes_is_said(
    engine: str,
    run: Run,
    tiny_run: Path,
    exported_run: Path,
    tiny_set: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("boxcrew.runtime.exported._MEASURED", 0.02)
    words: tuple[str, ...] = (f"run={tiny_run}",)
    if engine != "torch":
        words = (f"run={exported_run / 'model.onnx'}", f"engine={engine}")
    photo = next((tiny_set / "JPEGImages").iterdir())
    for command in (
        ("val", *words, f"data={tiny_set}"),
        ("predict", *words, f"source={photo}", f"out={tmp_path}"),
    ):
        assert run(*command, "--json") == 0
        out, err = capsys.readouterr()
        document = json.loads(out)
        facts = document["best"]["engine"] if command[0] == "val" else document["engine"]
        assert facts["name"] == engine or (engine == "auto" and facts["name"] in facts["measured"])
        assert facts["precision"] == "fp32"
        assert f"engine: {facts['name']} in fp32 on cpu, {counted(facts['threads'], 'thread')}" in err
        assert ("fastest in a measurement of two seconds: " in err) is (engine == "auto")


def test_a_damaged_file_is_refused_everywhere(
    run: Run, exported_run: Path, tiny_set: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.onnx"
    content = bytearray((exported_run / "model.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    for words in (("val", f"data={tiny_set}"), ("predict", f"source={tiny_set / 'JPEGImages'}")):
        assert run(words[0], f"run={file}", *words[1:]) == 4
        assert "is damaged: its checksum is wrong" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "run= is missing"),
        (("run=nowhere",), 4, "nowhere: no such run or weight file"),
        (("run=nowhere.onnx",), 4, "nowhere.onnx: cannot be read"),
        (("run=nowhere", "formt=onnx"), 2, "formt: no such setting; did you mean 'format'"),
    ],
)
def test_mistakes_are_answered(
    words: tuple[str, ...], code: int, message: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("export", *words) == code
    assert message in capsys.readouterr().err
