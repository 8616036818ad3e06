"""The page's server from outside: a process that is asked over HTTP while real trainings run, end and die."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.serve.watch.settings import WatchConfig
from tests.helpers import forked
from tests.helpers.copies import copied
from tests.helpers.once import MakeOnce
from tests.helpers.served import Served, served
from tests.helpers.tiny import TINY

HOSTILE = "<img src=x onerror=alert(1)>"
TOKEN = "a-long-secret"


@pytest.fixture(scope="module")
def staged_run(make_once: MakeOnce) -> Path:
    """A finished run with three stages, of which one is a closed form."""
    from boxcrew.api import run_config
    from boxcrew.train.output.screen import Screen
    from boxcrew.train.run import train
    from tests.helpers import staged
    from tests.helpers.made_examples import write_classes

    def run(folder: Path) -> None:
        write_classes(folder / "set", {"cup": 12, "bowl": 12})
        with staged.registered():
            tree = {"out": str(folder / "run"), "task": {"tuned": True}, "data": str(folder / "set")}
            train(run_config(staged.NAME, tree), Screen())

    return make_once("watched_stages", run) / "run"


@pytest.fixture(scope="module")
def runs(tiny_run: Path, staged_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: one, one with stages, a comparison, and one whose files are hostile."""
    folder = tmp_path_factory.mktemp("runs")
    copied(tiny_run, folder / "detect" / "train")
    copied(staged_run, folder / "staged")
    copied(tiny_run, folder / "six" / "yolo")
    (folder / "six" / "comparison.json").write_text('{"detectors": ["all"]}')
    damage(copied(tiny_run, folder / "hostile"))
    return folder


def damage(run: Path) -> None:
    """Replace the files of a run by what no training writes."""
    rows = [
        {"step": 1, "loss": 1.0, "rate": 0.1, f"loss/{HOSTILE}": 2.0, "\ud800": 1.0},
        {"step": 1, "AP": 0.5, f"AP/{HOSTILE}": 0.25, f"AP/{'x' * 150}": 0.125},
    ]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows) + '{"step": 2, "AP')
    (run / "status.json").write_text(
        json.dumps({"state": {"a": 1}, "step": "x", "fraction": -1e308, "reason": 5})
    )
    (run / "summary.json").write_text(
        json.dumps(
            {
                "state": "failed",
                "stopped_because": f"\ud800 {HOSTILE}",
                "AP": "high",
                "advice": [{"finding": HOSTILE, "remedy": 5}, "x"],
            }
        )
    )
    (run / "plan.json").write_text('{"replicas": 7')
    (run / "data_report.json").write_text("[" * 100_000)
    (run / "config.yaml").write_text("evaluation:\n  batch: 16\n  metric: AP50\n" + "x: [" * 9000)
    (run / "train.log").write_bytes(
        b"2026-01-01 10:00:00 warning: " + HOSTILE.encode() + b"\xff\n" + b"y" * 9000 + b"\n"
    )


@pytest.fixture(scope="module")
def page(runs: Path) -> Iterator[Served]:
    with served(f"run={runs}", command="watch", ready=False) as running:
        yield running


def overview(page: Served) -> dict[str, dict[str, Any]]:
    answer = page.ask("/api/runs")
    assert answer.status == 200
    return {run["key"]: run for run in answer.json["runs"]}


def until(page: Served, key: str, is_met: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the line of a run as soon as it is as wanted."""
    end = time.monotonic() + 60
    while True:
        line = overview(page).get(key, {"state": None, "step": None})
        if is_met(line):
            return line
        assert time.monotonic() < end, line
        time.sleep(0.1)


def values(table: dict[str, Any], name: str) -> list[float]:
    index = table["names"].index(name)
    return [row[index] for row in table["rows"]]


def test_all_runs_are_listed(page: Served) -> None:
    lines = overview(page)
    states = {key: (line["kind"], line["state"], line["parent"]) for key, line in lines.items()}
    assert states == {
        "detect/train": ("run", "finished", None),
        "hostile": ("run", "failed", None),
        "six": ("comparison", "finished", None),
        "six/yolo": ("run", "finished", "six"),
        "staged": ("staged", "finished", None),
        "staged/1-backbone": ("stage", "finished", "staged"),
        "staged/2-ridge": ("stage", "finished", "staged"),
        "staged/3-tune": ("stage", "finished", "staged"),
    }
    assert lines["detect/train"]["score"]["name"] == "AP"
    assert lines["staged"]["score"]["name"] == "accuracy"
    assert (lines["staged"]["parts"], lines["staged"]["parts_finished"]) == (3, 3)
    assert lines["detect/train"]["step"] == 3


def test_a_run_in_detail(page: Served, tiny_run: Path) -> None:
    details = page.ask("/api/run?run=detect/train").json
    plan = {row["name"]: row for row in details["plan_rows"]}
    summary = json.loads((tiny_run / "summary.json").read_text())
    predicted = json.loads((tiny_run / "plan.json").read_text())["predicted"]
    assert plan["run_seconds"]["likely"] == predicted["run"]["likely"]
    assert plan["run_seconds"]["measured"] == pytest.approx(summary["train_seconds"])
    assert plan["images_per_second"]["measured"] == pytest.approx(summary["images_per_second"])
    assert plan["peak_bytes"]["measured"] == summary["peak_memory_bytes"]
    assert [item["finding"] for item in details["advice"]] == [item["finding"] for item in summary["advice"]]
    assert details["plan"][0].startswith("single on cpu, batch 4")
    assert details["data"]["splits"] == {"train": 8, "val": 4, "test": 2}
    assert "training: " in details["log"][-1]
    assert details["settings"] == (tiny_run / "config.yaml").read_text()
    assert details["scores"]["AP"] == summary["AP"]
    assert details["damaged"] == []


def test_curves_are_those_of_the_file(page: Served, tiny_run: Path) -> None:
    rows = [json.loads(line) for line in (tiny_run / "metrics.jsonl").read_text().splitlines()]
    curves = page.ask("/api/curves?run=detect/train").json
    measured = [row["AP"] for row in rows if "AP" in row]
    assert values(curves["evaluations"], "AP") == pytest.approx(measured, rel=1e-5)
    assert values(curves["training"], "loss") == pytest.approx(
        [row["loss"] for row in rows if "loss" in row], rel=1e-5
    )
    cursor = ":".join(str(curves["evaluations"][name]) for name in ("generation",)) + f":{len(measured)}"
    again = page.ask(f"/api/curves?run=detect/train&evaluations={cursor}").json
    assert again["evaluations"]["rows"] == []
    assert len(again["training"]["rows"]) == 1  # of which the reader has said nothing


def test_pictures_are_those_of_the_run(page: Served, tiny_run: Path) -> None:
    listed = [picture["name"] for picture in page.ask("/api/run?run=detect/train").json["pictures"]]
    assert listed[:2] == ["val_batch0_pred.jpg", "val_batch0_labels.jpg"]
    answer = page.ask("/api/picture?run=detect/train&name=val_batch0_pred.jpg")
    assert answer.body == (tiny_run / "plots" / "val_batch0_pred.jpg").read_bytes()
    assert answer.headers["content-type"] == "image/jpeg"


def test_hostile_files_are_shown_as_far_as_they_can_be(page: Served) -> None:
    details = page.ask("/api/run?run=hostile").json
    assert (details["state"], details["step"], details["task"]) == ("failed", None, None)
    assert HOSTILE in details["reason"]
    assert sorted(details["damaged"]) == ["data_report.json", "plan.json"]
    assert details["notices"] == [f"warning: {HOSTILE}�"]
    assert details["advice"][0]["finding"] == HOSTILE
    assert max(map(len, details["log"])) <= 600
    curves = page.ask("/api/curves?run=hostile").json
    assert values(curves["evaluations"], f"AP/{HOSTILE}") == [0.25]
    assert curves["evaluations"]["rows"][0][0] == 1
    assert overview(page)["hostile"]["score"] == {"name": "AP", "value": 0.5, "step": 1, "higher": True}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/run?run=../../etc", 404),
        ("/api/run", 404),
        (f"/api/run?run={quote('/etc')}", 404),
        ("/api/curves?run=%00", 404),
        ("/api/picture?run=detect/train&name=../config.yaml", 404),
        (f"/api/picture?run=detect/train&name={quote('/etc/passwd')}", 404),
        ("/api/picture?run=detect/train&name=" + "x" * 3000, 404),
        ("/static/../app.py", 404),
        ("/static/%2e%2e/app.py", 404),
        ("/static/..%2f..%2frun.py", 404),
        ("/static/page/index.html", 404),
        ("/etc/passwd", 404),
        ("/api/runs/", 404),
    ],
)
def test_nothing_else_is_shown(page: Served, path: str, status: int) -> None:
    answer = page.ask(path)
    assert answer.status == status
    assert set(answer.json) == {"error", "advice", "request"}
    assert "/tmp" not in answer.body.decode()
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_it_only_shows(page: Served) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert page.ask("/api/runs", b"{}", method=method).status == 405
    assert page.ask("/", method="HEAD").status == 200


def test_pages_of_other_sites_learn_nothing(page: Served) -> None:
    assert page.ask("/api/runs", headers={"Host": "evil.example"}).status == 400
    assert page.ask("/api/runs", headers={"Origin": "http://evil.example"}).status == 400
    assert page.ask("/api/runs", headers={"Host": f"localhost:{page.port}"}).status == 200


def test_the_page_and_its_files_come_from_here_alone(page: Served) -> None:
    html = page.ask("/").body.decode()
    files = [part.partition('"')[0] for part in html.split('="/static/')[1:]]
    assert {"app.js", "style.css", "icon.svg"} <= set(files)
    folder = Path(__file__).parents[3] / "src" / "boxcrew" / "serve" / "watch" / "page"
    for file in sorted(folder.iterdir()):
        answer = page.ask(f"/static/{file.name}" if file.suffix != ".html" else "/")
        assert answer.body == file.read_bytes()
        text = answer.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        assert "innerHTML" not in text


def test_a_client_that_says_nothing_sensible_is_refused(page: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
    connection.connect()
    assert connection.sock is not None
    connection.sock.sendall(b"\x00\xff nonsense\r\n\r\n")
    assert b" 400 " in connection.sock.recv(1000)
    connection.close()
    assert page.ask("/v2/health/live").status == 200


def test_a_training_is_watched_while_it_runs_dies_and_goes_on(tiny_set: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    words = ("train", *TINY, f"data={tiny_set}", f"out={folder / 'live'}", "steps=100000", "loader.workers=0")
    often = (
        "summaries.every_steps=1",
        "summaries.tensorboard=false",
        "summaries.images=0",
        "saver.every_steps=100",
    )
    with served(f"run={folder}", command="watch", ready=False) as page:
        assert overview(page) == {}
        first = "import boxcrew.train.loop.hooks.progress as p; p.STATUS_SECONDS = 0.1\n"
        training = forked.boxcrew(*words, *often, "trial=false", first=first, cwd=tmp_path)
        try:
            before = until(page, "live", lambda line: line["state"] == "running" and (line["step"] or 0) > 4)
            later = until(page, "live", lambda line: (line["step"] or 0) > before["step"])
            assert later["state"] == "running"
            assert later["remaining"] > 0
            seen = page.ask("/api/curves?run=live").json["training"]
            assert len(seen["rows"]) > 4
        finally:
            training.kill()
            training.wait(30)
        dead = until(page, "live", lambda line: line["state"] != "running")
        assert dead["state"] == "killed"
        with (folder / "live" / "metrics.jsonl").open("a") as torn:
            torn.write('{"step": 100, "rate": 1, "lo')
        cursor = f"{seen['generation']}:{len(seen['rows'])}"
        rest = page.ask(f"/api/curves?run=live&training={cursor}").json["training"]
        assert (rest["generation"], rest["from"]) == (seen["generation"], len(seen["rows"]))
        shutil.rmtree(folder / "live")
        until(page, "live", lambda line: line["state"] is None)
        make_anew(folder / "live")
        anew = page.ask("/api/curves?run=live").json["training"] if "live" in overview(page) else None
        until(page, "live", lambda line: line["state"] == "finished")
        anew = page.ask(f"/api/curves?run=live&training={cursor}").json["training"]
        assert (anew["from"], values(anew, "loss")) == (0, [9.0])


def make_anew(folder: Path) -> None:
    folder.mkdir()
    (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 9.0, "rate": 0.1}\n')
    (folder / "status.json").write_text('{"state": "finished", "step": 1, "fraction": 1.0}')


def test_a_run_that_was_named_and_is_deleted_stays_in_the_list(tiny_run: Path, tmp_path: Path) -> None:
    run = copied(tiny_run, tmp_path / "train")
    with served(f"run={run}", command="watch", ready=False) as page:
        curves = page.ask("/api/curves?run=train").json
        shutil.rmtree(run)
        assert until(page, "train", lambda line: line["state"] == "gone")["name"] == "train"
        assert page.ask("/api/curves?run=train").json == curves
        assert page.ask("/api/run?run=train").json["plan"] == []


def test_a_token_is_asked_for(tiny_run: Path) -> None:
    environment = {"BOXCREW_TOKEN": TOKEN}
    with served(
        f"run={tiny_run}", "host=0.0.0.0", command="watch", environment=environment, ready=False
    ) as page:
        assert page.ask("/").status == 200
        assert page.ask("/static/app.js").status == 200
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
            for path in (
                "/api/runs",
                "/api/run?run=train",
                "/api/curves?run=train",
                "/api/picture?run=train&name=x.png",
            ):
                answer = page.ask(path, headers=headers)
                assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert page.ask("/api/runs", headers={"Authorization": f"Bearer {TOKEN}"}).status == 200
        assert page.end() == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"host": "0.0.0.0"}, "has to ask for a token"),
        ({"token": "short"}, "token=: must have at least 8"),
        ({"run": "nowhere"}, "run=nowhere: no such directory"),
        ({"port": 70000}, "port: "),
        ({"prot": 1}, "did you mean 'port'"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        WatchConfig.of({"run": str(tmp_path), **settings})


def test_ctrl_c_is_the_end_and_a_port_in_use_is_told(page: Served, runs: Path) -> None:
    with served(f"run={runs}", command="watch", ready=False) as other:
        other.process.send_signal(signal.SIGINT)
        assert other.process.wait(20) == 0
    command = [sys.executable, "-m", "boxcrew", "watch", f"run={runs}", f"port={page.port}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert f"port={page.port}: " in done.stderr
    assert "port=0" in done.stderr


def test_it_needs_no_torch(runs: Path) -> None:
    code = (
        "import sys; from boxcrew.cli.watch import watch_command; import boxcrew.serve.watch.server; "
        "print([name for name in ('torch', 'onnxruntime', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "[]"
