"""A run of stages: killed in any of them and resumed, it is bit-equal to one that never stopped."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from boxcrew.api import run_config, train_run
from boxcrew.cli.main import main
from boxcrew.core.config import Tree, read_yaml
from boxcrew.core.errors import BoxcrewError, ModelError, UsageError
from boxcrew.plan.plan import Plan
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.trainer import StepReport, Trainer
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning.from_settings import planned_processes
from boxcrew.train.run import resume, train
from boxcrew.train.run.loading import load_task
from tests.helpers.made_examples import write_classes
from tests.helpers.once import MakeOnce
from tests.helpers.runs import require_same_run
from tests.helpers.staged import NAME, registered, training_with

InChild = Callable[..., int]
STAGES = ("1-backbone", "2-ridge", "3-tune")
WEIGHTS = ("weights/best.safetensors", "weights/last.safetensors")

FAULTS = {
    "before the first checkpoint of stage 1": ('die_at_call(Trainer, "_update", 1)', "1-backbone"),
    "in a step of stage 1": ('die_at_call(Trainer, "_update", 4)', "1-backbone"),
    "between the summary and the COMMIT of stage 1": ('die_at_call(stages, "publish", 1)', "1-backbone"),
    "in the solve": ('die_at_call(toy.RidgeToyData, "solve", 1)', "2-ridge"),
    "between the copies and the COMMIT of stage 2": (
        'die_at_call(stages, "commit", 2)',
        "2-ridge",
    ),
    "at the start of stage 3": ('die_at_call(stages, "prepare", 2)', "3-tune"),
    "in a step of stage 3": ('die_at_call(Trainer, "_update", 11)', "3-tune"),
}
"""Where a process is killed -> how, and the stage that is then begun. Stages 1 and 3 have 6 steps each."""


@pytest.fixture(autouse=True, scope="module")
def _toy() -> Iterator[None]:
    with registered():
        yield


@pytest.fixture(scope="module")
def pictures(make_once: MakeOnce) -> Path:
    return (
        make_once("pictures", lambda folder: write_classes(folder / "set", {"cup": 12, "bowl": 12})) / "set"
    )


def settings(pictures: Path, out: Path, *, tuned: bool = True) -> Tree:
    return {"data": str(pictures), "out": str(out), "task": {"tuned": tuned}}


@pytest.fixture(scope="module")
def complete(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three stages that was never stopped."""
    out = tmp_path_factory.mktemp("complete") / "run"
    outcome = train(run_config(NAME, settings(pictures, out)), Screen())
    assert outcome.folder == out
    return out


def states(run: Path) -> dict[str, str]:
    return {
        stage["folder"]: stage["state"] for stage in json.loads((run / "stages.json").read_text())["stages"]
    }


def require_same_stages(first: Path, second: Path) -> None:
    for stage in STAGES:
        for name in WEIGHTS:
            assert (first / stage / name).read_bytes() == (second / stage / name).read_bytes(), (stage, name)
    for stage in ("1-backbone", "3-tune"):
        require_same_run(first / stage, second / stage)
    for name in WEIGHTS:
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_every_stage_starts_from_the_one_before(complete: Path) -> None:
    """Stages have their share of the steps; the directory of the run has the weights of the last."""
    assert states(complete) == dict.fromkeys(STAGES, "finished")
    configs = [RunConfig.of(read_yaml(complete / stage / "config.yaml")) for stage in STAGES]
    assert [config.steps for config in configs if config.task.stages()] == [6, 12, 6]  # a solve has no steps
    assert configs[2].optim.rate == 0.001
    tensors = [load_task(complete / stage, device="cpu").task.state_dict() for stage in STAGES]
    changed = [
        {name for name, value in before.items() if not value.equal(after[name])}
        for before, after in pairwise(tensors)
    ]
    head = {"net.body.head.weight", "net.body.head.bias"}
    assert changed[0] == head
    assert {name for name in changed[1] if "running_" not in name} == head
    counts = [int(value) for name, value in tensors[2].items() if name.endswith("num_batches_tracked")]
    assert counts
    assert all(counts)
    for name in WEIGHTS:
        assert (complete / name).read_bytes() == (complete / "3-tune" / name).read_bytes()


def test_the_summary_is_that_of_all_stages(complete: Path) -> None:
    summary = json.loads((complete / "summary.json").read_text())
    own = [json.loads((complete / stage / "summary.json").read_text()) for stage in STAGES]
    assert [stage["steps"] for stage in own] == [6, 0, 6]
    assert own[1]["train_seconds"] > 0
    assert own[1]["peak_memory_bytes"] > 0
    assert (summary["state"], summary["steps"], summary["images"]) == ("finished", 12, 48)
    for name in ("train_seconds", "epochs"):
        assert summary[name] == pytest.approx(sum(stage[name] for stage in own))
    assert summary["val_loss"] == own[2]["val_loss"]
    assert [(stage["folder"], stage["kind"]) for stage in summary["stages"]] == [
        ("1-backbone", "descend"),
        ("2-ridge", "solve"),
        ("3-tune", "descend"),
    ]
    assert [stage["val_loss"] for stage in summary["stages"]] == [stage["val_loss"] for stage in own]
    log = (complete / "train.log").read_text()
    for line in ("stage 1-backbone: ", ", 6 steps\n", "stage 2-ridge: ", ", closed form\n", "12 steps, "):
        assert line in log


def test_an_interrupted_run_is_summed_up_as_far_as_it_came(
    pictures: Path, complete: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in a step of stage 3 -> the run says so, and goes on from there."""
    original, calls = Trainer._do_step, []

    def do_step(self: Trainer) -> StepReport:
        calls.append(self)
        if len(calls) == 8:
            signal.raise_signal(signal.SIGINT)
        return original(self)

    monkeypatch.setattr(Trainer, "_do_step", do_step)
    out = tmp_path / "run"
    outcome = train_run(run_config(NAME, settings(pictures, out)), Screen())
    assert outcome.interrupted
    assert outcome.folder == out
    summary = json.loads((out / "summary.json").read_text())
    assert summary == outcome.summary
    assert (summary["state"], summary["steps"]) == ("interrupted", 8)
    assert [stage["state"] for stage in summary["stages"]] == ["finished", "finished", "interrupted"]
    resume(out, {}, Screen())
    require_same_stages(out, complete)
    assert json.loads((out / "summary.json").read_text())["steps"] == 12


def test_a_failed_run_is_summed_up_as_far_as_it_came(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Trainer._do_step

    def do_step(self: Trainer) -> StepReport:
        if self.step == 3:
            raise BoxcrewError("no power")
        return original(self)

    monkeypatch.setattr(Trainer, "_do_step", do_step)
    out = tmp_path / "run"
    with pytest.raises(BoxcrewError, match="no power"):
        train(run_config(NAME, settings(pictures, out)), Screen())
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["state"], summary["steps"], summary["stopped_because"]) == ("failed", 3, "no power")
    assert len(summary["stages"]) == 1


@pytest.mark.parametrize("where", FAULTS)
def test_kill_in_a_stage(
    where: str, pictures: Path, complete: Path, tmp_path: Path, in_child: InChild
) -> None:
    """SIGKILL -> the finished stages stay as they are, and the end is bit-equal."""
    fault, begun = FAULTS[where]
    out = tmp_path / "run"
    assert in_child(training_with(fault), settings=settings(pictures, out)) == -signal.SIGKILL
    index = STAGES.index(begun)
    assert list(states(out).values()) == ["finished"] * index + ["begun"] + ["waiting"] * (2 - index)
    times = {file: file.stat().st_mtime_ns for stage in STAGES[:index] for file in (out / stage).rglob("*")}
    resume(out, {}, Screen())
    assert {file: file.stat().st_mtime_ns for file in times} == times
    assert states(out) == dict.fromkeys(STAGES, "finished")
    require_same_stages(out, complete)


def test_a_run_that_was_moved_is_resumed(
    pictures: Path, complete: Path, tmp_path: Path, in_child: InChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed in its last stage and moved goes on, by the name of that stage, too."""
    fault, _ = FAULTS["in a step of stage 3"]
    assert in_child(training_with(fault), settings=settings(pictures, tmp_path / "run")) < 0
    (tmp_path / "run").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    resume(Path("3-tune"), {}, Screen())
    require_same_stages(tmp_path / "moved", complete)


def test_a_finished_run_is_not_run_again(complete: Path) -> None:
    times = {file: file.stat().st_mtime_ns for file in complete.rglob("*") if file.is_file()}
    for changes in ({}, {"steps": 100}):
        with pytest.raises(UsageError, match="already finished: all of its 3 stages"):
            resume(complete, changes, Screen())
    assert {file: file.stat().st_mtime_ns for file in complete.rglob("*") if file.is_file()} == times


def test_val_uses_the_last_stage(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that ends with a solve stage: train, val and load see its result."""
    out = tmp_path / "run"

    def boxcrew(*words: str) -> dict[str, object]:
        monkeypatch.setattr(sys, "argv", ["boxcrew", *words, "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        printed: dict[str, object] = json.loads(capsys.readouterr().out)
        return printed

    trained = boxcrew("train", NAME, f"data={pictures}", f"out={out}")
    assert trained["run"] == str(out)
    assert (out / "1-backbone/plots/results.png").is_file()
    report = boxcrew("val", f"run={out}", "device=cpu")["best"]
    assert isinstance(report, dict)
    assert report["weights"] == str(out / WEIGHTS[0])
    assert report["numbers"]["val_loss"] == pytest.approx(trained["val_loss"], rel=1e-4)
    first = boxcrew("val", f"run={out / '1-backbone'}", "device=cpu")["best"]
    assert isinstance(first, dict)
    assert report["numbers"]["val_loss"] != pytest.approx(first["numbers"]["val_loss"], rel=1e-4)


def _cut_weights(run: Path) -> None:
    file = run / "2-ridge" / WEIGHTS[0]
    file.write_bytes(file.read_bytes()[:-8])


def _replace(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "weights cut": (_cut_weights, "2-ridge/weights/best.safetensors: damaged"),
    "weights lost": (lambda run: (run / "1-backbone" / WEIGHTS[1]).unlink(), "last.safetensors: damaged"),
    "summary lost": (lambda run: (run / "2-ridge/summary.json").unlink(), "2-ridge/summary.json: damaged"),
    "COMMIT cut": (lambda run: (run / "1-backbone/COMMIT").write_text('{"crc'), "COMMIT: cut off or damaged"),
    "stage lost": (lambda run: shutil.rmtree(run / "1-backbone"), "1-backbone, which it starts from, is not"),
    "list cut": (lambda run: (run / "stages.json").write_text('{"sta'), "stages.json: damaged"),
    "other stages": (
        lambda run: _replace(run / "stages.json", "1-backbone", "1-other"),
        "has the stages 1-other, .*; the settings give 1-backbone",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_stage_is_one_clear_error(kind: str, complete: Path, tmp_path: Path) -> None:
    damage, message = DAMAGE[kind]
    run = tmp_path / "run"
    shutil.copytree(complete, run)
    (run / "3-tune/COMMIT").unlink()
    damage(run)
    with pytest.raises(ModelError, match=message) as raised:
        resume(run, {}, Screen())
    assert raised.value.advice


def test_settings_of_finished_stages_cannot_change(complete: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(complete, run)
    shutil.rmtree(run / "3-tune")
    with pytest.raises(UsageError, match="cannot change any more"):
        resume(run, {"seed": 7}, Screen())
    resume(run, {"steps": 20}, Screen())
    assert json.loads((run / "summary.json").read_text())["steps"] == 6 + 10


def test_directories_of_stages_and_runs_are_not_mixed(pictures: Path, complete: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a stage of the run in"):
        train(run_config(NAME, settings(pictures, complete / "1-backbone")), Screen())
    plain = {"data": str(pictures), "steps": 1, "net": {"width": 4}, "loader": {"workers": 0}}
    with pytest.raises(UsageError, match="a run with stages"):
        train(run_config("cnn", {**plain, "out": str(complete)}), Screen())
    run = tmp_path / "plain"
    train(run_config("cnn", {**plain, "out": str(run)}), Screen())
    with pytest.raises(UsageError, match="a run without stages"):
        train(run_config(NAME, settings(pictures, run)), Screen())
    assert not (run / "stages.json").exists()


def test_a_stage_is_resumed_with_the_processes_of_its_run(
    complete: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan | None] = []

    def planned(config: RunConfig, before: Plan | None) -> tuple[int, int]:
        plans.append(before)
        return 1, 0

    monkeypatch.setattr("boxcrew.cli.train.planned_processes", planned)
    for name in ("", "2-ridge", "3-tune"):
        monkeypatch.setattr(sys, "argv", ["boxcrew", "resume", f"run={complete / name}"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2  # it is finished
    first = Plan.read(complete / "1-backbone" / "plan.json", setting="plan")
    assert [plan.replicas for plan in plans if plan] == [first.replicas] * 3


def test_parameter_servers_are_refused(pictures: Path, tmp_path: Path) -> None:
    deploy = {"strategy": "parameter_server", "replicas": 2}
    config = run_config(NAME, {**settings(pictures, tmp_path / "run"), "deploy": deploy})
    for begin in (lambda: train(config, Screen()), lambda: planned_processes(config)):
        with pytest.raises(UsageError, match="parameter_server: a run with stages has no") as raised:
            begin()
        assert raised.value.advice.startswith("leave deploy.strategy=parameter_server out")
    assert not (tmp_path / "run").exists()
