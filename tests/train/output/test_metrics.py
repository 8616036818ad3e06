"""The files of numbers, over stops and kills."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from boxcrew.train.loop.schedule import Progress
from boxcrew.train.output.best_effort import BestEffort
from boxcrew.train.output.metrics import MetricsWriter, read_rows
from boxcrew.train.output.tensorboard import TensorBoardLog


def at(step: int) -> Progress:
    return Progress(step=step, epoch=step / 3, fraction=0.5)


def nowhere(text: str) -> None: ...


def make(folder: Path, *, from_step: int) -> MetricsWriter:
    tensorboard = TensorBoardLog(None, from_step=from_step, warn=nowhere)
    return MetricsWriter(folder, tensorboard=tensorboard, files=BestEffort(nowhere), from_step=from_step)


def fill(folder: Path, *, from_step: int, steps: range, results: tuple[int, ...]) -> MetricsWriter:
    metrics = make(folder, from_step=from_step)
    for step in steps:
        metrics.add(at(step), step * 1.5, {"loss": 1 / step, "rate": 0.1})
        if step in results:
            metrics.add_result(at(step), step * 1.5, {"AP": step / 10, "AP/cup": 0.5})
    return metrics


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_and_results(tmp_path: Path) -> None:
    fill(tmp_path, from_step=0, steps=range(1, 7), results=(3, 6))
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert len(rows) == 8
    assert rows[0] == {"step": 1, "epoch": 0.3333, "time": 1.5, "loss": 1.0, "rate": 0.1}
    assert [row["step"] for row in table(tmp_path)] == ["3", "6"]
    assert table(tmp_path)[1] == {"step": "6", "epoch": "2.0", "time": "9.0", "AP": "0.6", "AP/cup": "0.5"}


def test_what_came_after_the_checkpoint_is_forgotten(tmp_path: Path) -> None:
    fill(tmp_path, from_step=0, steps=range(1, 8), results=(3, 6))
    metrics = make(tmp_path, from_step=5)
    assert [row["step"] for row in table(tmp_path)] == ["3"]
    assert [row["step"] for row in metrics.results] == [3]
    fill(tmp_path, from_step=5, steps=range(6, 9), results=(6,))
    steps = [(row["step"], "AP" in row) for row in read_rows(tmp_path / "metrics.jsonl")]
    assert steps == [(s, ap) for s in range(1, 9) for ap in ((False, True) if s in {3, 6} else (False,))]
    assert [row["step"] for row in table(tmp_path)] == ["3", "6"]


def test_a_run_begun_anew_begins_with_nothing(tmp_path: Path) -> None:
    fill(tmp_path, from_step=0, steps=range(1, 4), results=(3,))
    make(tmp_path, from_step=0)
    assert read_rows(tmp_path / "metrics.jsonl") == []
    assert not (tmp_path / "results.csv").exists()


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_half_a_last_line_is_none(tmp_path: Path, cut: int) -> None:
    fill(tmp_path, from_step=0, steps=range(1, 4), results=())
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    assert [row["step"] for row in read_rows(path)] == [1, 2]
    fill(tmp_path, from_step=2, steps=range(3, 4), results=())
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3]


def test_columns_that_come_later_are_columns_of_all(tmp_path: Path) -> None:
    metrics = make(tmp_path, from_step=0)
    metrics.add_result(at(1), 1.0, {"AP": 0.1})
    metrics.add_result(at(2), 2.0, {"AP": 0.2, 'AP/cup, "big"\nred': 0.3})
    rows = table(tmp_path)
    assert [row['AP/cup, "big"\nred'] for row in rows] == ["", "0.3"]
    assert list(rows[0]) == ["step", "epoch", "time", "AP", 'AP/cup, "big"\nred']


def test_lines_are_json_even_of_what_is_no_number(tmp_path: Path) -> None:
    metrics = make(tmp_path, from_step=0)
    metrics.add(at(1), 1.0, {"loss": 0.5, "gradient_norm": float("inf"), "rate": float("nan")})

    def refuse(word: str) -> None:
        raise AssertionError(word)

    row = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=refuse)
    assert row == {"step": 1, "epoch": 0.3333, "time": 1.0, "loss": 0.5}


def test_tensorboard_hides_what_is_forgotten(tmp_path: Path) -> None:
    for from_step in (0, 2, 0):
        tensorboard = TensorBoardLog(tmp_path / "tb", from_step=from_step, warn=nowhere)
        for step in range(from_step + 1, 5):
            metrics = MetricsWriter(
                tmp_path, tensorboard=tensorboard, files=BestEffort(nowhere), from_step=from_step
            )
            metrics.add(at(step), 1.0, {"loss": 1.0})
        tensorboard.close()
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3, 4]


def test_damaged_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(b'{"step": 1}\n{"st\n\xff\x00\n[1]\n{"step": 2}\n{"step": 3')
    warnings: list[str] = []
    assert read_rows(file, warnings.append) == [{"step": 1}, {"step": 2}]
    assert warnings == [f"{file}: 3 damaged lines, left out"]
