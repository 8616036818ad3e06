"""`boxcrew plan`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boxcrew.plan.plan import Plan
from tests.helpers import staged_detector
from tests.helpers.made_examples import make_folder
from tests.helpers.tiny import TINY, TINY_NET

Call = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("boxcrew.hardware.speed.MOMENT", 0.001)


@pytest.fixture
def plan(boxcrew: Call, tiny_set: Path) -> Call:
    """The command, on a few images and without trying steps."""

    def run(*words: str) -> Any:
        return boxcrew("plan", f"data={tiny_set}", *TINY_NET, "batch=8", "trial=false", *words)

    return run


def test_a_plan_is_told_with_what_it_takes_and_why(plan: Call, tmp_path: Path) -> None:
    done = plan()
    assert done.code == 0, done.err
    for message in (
        "plan: single on cpu, batch 8",
        "no accelerator found: training on the CPU",
        "expected: ",
        "s per step (",
        "limited by compute",
        "parameter device",
        "activations",
        "available",
        "not chosen: ",
    ):
        assert message in done.out
    assert not list(tmp_path.iterdir()), "nothing is written"


def test_for_a_machine_that_is_not_here(plan: Call) -> None:
    done = plan("--assume", "2x24GB-gpu, 16 cores, 64GB", "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    made = Plan.of(report["plan"])
    assert (made.strategy, made.devices, made.threads) == ("ddp", ("cuda:0", "cuda:1"), 8)
    assert made.predicted is not None
    assert [memory.device for memory in made.predicted.memory] == ["cpu", "cuda:0", "cuda:1"]
    assert report["parameters"]
    assert report["workload"]["parameters"] > 0


@pytest.mark.parametrize("recipe", ["fc", "cnn", "rnn", "gan"])
def test_for_networks_that_are_no_detectors(boxcrew: Call, recipe: str, tmp_path: Path) -> None:
    data: tuple[str, ...] = (f"data={make_folder(tmp_path / 'pictures')}", "size=28")
    if recipe == "rnn":  # what a step of longer texts costs takes long to work out
        data = ("task.length=16",)
    words = ("plan", recipe, *data, "trial=false", "--json")
    here, there = (boxcrew(*words, *more) for more in ((), ("--assume", "2x24GB-gpu, 16 cores, 64GB")))
    assert (here.code, there.code) == (0, 0), here.err + there.err
    assert "images/s" not in here.err
    alone, both = (Plan.of(json.loads(done.out)["plan"]) for done in (here, there))
    assert (alone.strategy, both.strategy) == ("single", "ddp")
    for plan in (alone, both):
        assert plan.predicted is not None
        assert all(memory.is_enough and memory.peak > 0 for memory in plan.predicted.memory)
        assert 0 < plan.predicted.step.likely < 60


def test_a_critic_that_learns_more_often_makes_steps_shorter(boxcrew: Call, tmp_path: Path) -> None:
    """On the whole: four in five have one phase of two. The speeds of the described machine are fixed."""
    seconds = []
    words = ["plan", "gan", f"data={make_folder(tmp_path / 'pictures')}", "size=28", "trial=false", "--json"]
    words += ["--assume", "24GB-gpu, 16 cores, 64GB"]
    for critic_steps in (1, 5):
        done = boxcrew(*words, f"task.critic_steps={critic_steps}")
        seconds.append(json.loads(done.out)["plan"]["predicted"]["step"]["likely"])
    assert seconds[1] < 0.9 * seconds[0]


def test_for_a_machine_that_is_described_in_a_file(boxcrew: Call, plan: Call, tmp_path: Path) -> None:
    (tmp_path / "there.json").write_text(boxcrew("devices", "--json").out)
    done = plan("--assume", "there.json")
    assert done.code == 0, done.err
    assert "(assumed)" in done.out


def test_a_plan_is_written_edited_and_replayed(
    boxcrew: Call, plan: Call, tiny_set: Path, tmp_path: Path
) -> None:
    done = plan("out=plan.json")
    assert done.code == 0, done.err
    file = tmp_path / "plan.json"
    edited = json.loads(file.read_text()) | {"accumulation": 2, "memory_format": "contiguous"}
    file.write_text(json.dumps(edited))
    words = (f"data={tiny_set}", *TINY, "steps=2", "plan=plan.json", "out=run")
    done = boxcrew("train", *words)
    assert done.code == 0, done.err
    followed = Plan.read(tmp_path / "run" / "plan.json", setting="plan")
    assert (followed.accumulation, followed.memory_format, followed.batch) == (2, "contiguous", 8)
    file.write_text(json.dumps(edited | {"batch": 9}))
    refused = boxcrew("train", *words[:-1], "out=other")
    assert refused.code == 2
    assert "the clones' shares 8 do not add up to batch 9" in refused.err


def test_a_plan_is_drawn_and_nothing_is_overwritten(plan: Call, tmp_path: Path) -> None:
    done = plan("out=plan.png")
    assert done.code == 0, done.err
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    again = plan("out=plan.png")
    assert again.code == 2
    assert "out=plan.png: exists already" in again.err


def test_every_stage_of_a_run_is_planned(boxcrew: Call, tiny_set: Path, tmp_path: Path) -> None:
    """By both commands; a file for one plan is refused."""
    with staged_detector.registered():
        words = (staged_detector.NAME, f"data={tiny_set}", "detector.tuned=true", "trial=false")
        planned, shown = (
            boxcrew(command, *words, "--json", *more) for command, *more in (["plan"], ["train", "--explain"])
        )
        refused = boxcrew("plan", *words, "out=plan.json")
    assert (planned.code, shown.code) == (0, 0), planned.err + shown.err
    for done in (planned, shown):
        report = json.loads(done.out)
        assert [each["kind"] for each in report["plans"]] == ["descend", "solve", "descend"]
        assert report["seconds"]["likely"] > 0
        assert "closed form, not predicted" in done.err
    assert refused.code == 2
    assert "out=plan.json: a run with stages has several plans" in refused.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["goal=quickest"], "goal"),
        (["goal=deadline:soon"], "soon: not a duration"),
        (["goal=deadline:1s", "epochs=100"], "the fastest plan takes about"),
        (["goal=budget:10MB"], "not enough memory"),
        (["--assume", "2x24GB-gpoo"], "2x24GB-gpoo"),
        (["--assume", "0x24GB-gpu"], "0x24GB-gpu"),
        (["--assume", "nowhere.json"], "nowhere.json"),
        (["out=plan.txt"], "out=plan.txt: neither .json nor .png"),
        (["out=nowhere/plan.png"], "no such directory"),
        (["plan=nowhere.json"], "plan=nowhere.json: No such file"),
        (["device=cuda:3"], "device=cuda:3: not on this machine"),
        (["gaol=fastest"], "gaol"),
    ],
)
def test_what_cannot_be_is_one_clear_error(plan: Call, words: list[str], message: str) -> None:
    done = plan(*words)
    assert done.code == 2, (done.out, done.err)
    assert message in done.err
    assert done.err.count("error: ") == 1


def test_a_description_with_unknown_fields(boxcrew: Call, plan: Call, tmp_path: Path) -> None:
    machine = json.loads(boxcrew("devices", "--json").out) | {"color": "gray"}
    (tmp_path / "there.json").write_text(json.dumps(machine))
    done = plan("--assume", "there.json")
    assert done.code == 2
    assert "color: no such setting" in done.err


def test_a_plan_for_another_task_is_refused(boxcrew: Call, plan: Call, tiny_set: Path) -> None:
    assert plan("out=plan.json").code == 0
    done = boxcrew("plan", "ssd300_vgg16", f"data={tiny_set}", "trial=false", "plan=plan.json")
    assert done.code == 2
    assert "was made for detection by ssdlite, not for detection by ssd" in done.err
