"""Rows of numbers: never too many, and each reader gets what it lacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boxcrew.serve.watch.curves import Cursor, MetricTable, RunCurves


def row(step: int, **numbers: float) -> dict[str, float]:
    return {"step": step, "epoch": step / 10, "time": step * 2.0, **numbers}


def column(part: dict[str, Any], name: str) -> list[float | None]:
    index = part["names"].index(name)
    return [cells[index] if index < len(cells) else None for cells in part["rows"]]


NOTHING = Cursor.of("")


def cursor_after(part: dict[str, Any]) -> Cursor:
    return Cursor.of(f"{part['generation']}:{part['from'] + len(part['rows'])}")


def test_a_reader_gets_each_row_once() -> None:
    table = MetricTable()
    for step in range(3):
        table.add(row(step, loss=step))
    first: Any = table.after(NOTHING)
    assert column(first, "loss") == [0, 1, 2]
    table.add(row(3, loss=3, AP=0.5))
    second: Any = table.after(cursor_after(first))
    assert (second["from"], column(second, "loss"), column(second, "AP")) == (3, [3], [0.5])
    assert table.after(cursor_after(second))["rows"] == []
    table.clear()
    table.add(row(0, loss=9))
    third: Any = table.after(cursor_after(second))
    assert (third["from"], column(third, "loss")) == (0, [9])


@pytest.mark.parametrize("text", ["", "1", "x:y", "1:", "-1:0", "9" * 30 + ":1", "1:99999", "²:1"])
def test_a_reader_with_a_strange_cursor_gets_all(text: str) -> None:
    table = MetricTable()
    table.add(row(1, loss=1))
    part = table.after(Cursor.of(text))
    assert (part["from"], len(part["rows"])) == (0, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("num", [9, 10, 11, 100, 1001])
def test_many_rows_become_means(num: int) -> None:
    table = MetricTable(max_rows=10)
    for step in range(num):
        table.add(row(step, loss=step))
    part: Any = table.after(NOTHING)
    values = column(part, "loss")
    assert len(values) <= 10
    assert column(part, "step") == values  # the mean of a row stands at the mean of its steps
    width = -(-num // 16) or 1
    assert abs((values[0] or 0) - (width - 1) / 2) <= width
    assert values == sorted(values, key=lambda value: value or 0)
    assert table.last["loss"] == num - 1
    assert table.best("loss", higher=True) == (num - 1, num - 1)
    assert table.best("loss", higher=False) == (0, 0)


def test_of_equal_bests_the_last_of_high_and_the_first_of_low_ones() -> None:
    table = MetricTable()
    for step, value in enumerate((0.1, 0.4, 0.4, 0.2, 0.1)):
        table.add(row(step, AP=value))
    assert table.best("AP", higher=True) == (0.4, 2)
    assert table.best("AP", higher=False) == (0.1, 0)
    assert table.best("AR", higher=True) is None
    assert table.recent("AP") == 0.2


def test_names_are_limited(tmp_path: Path) -> None:
    table = MetricTable()
    table.add(row(1, **{f"AP/{number}": 0.5 for number in range(1000)}, **{"x" * 300: 1.0}))
    names: Any = table.after(NOTHING)["names"]
    assert len(names) == 400
    assert "x" * 300 not in names


def test_the_file_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    curves = RunCurves(path)
    curves.update()
    rows = [row(1, loss=2.0, rate=0.1), row(2, loss=1.0, rate=0.1), row(2, AP=0.3)]
    damaged = ["not json", "[]", '{"loss": 1}', "[" * 50_000]
    text = "\n".join([*map(json.dumps, rows), *damaged, '{"step": 3, "AP": NaN, "AP50": 0.5}'])
    path.write_text(text + '\n{"step": 4, "AP')
    curves.update()
    assert column(curves.training.after(NOTHING), "loss") == [2, 1]
    assert curves.evaluations.last == {"step": 3, "AP50": 0.5}
    assert curves.num_damaged == 4
    path.write_text(json.dumps(row(1, loss=7.0, rate=0.1)) + "\n")  # the run has begun anew
    curves.update()
    assert column(curves.training.after(NOTHING), "loss") == [7]
    assert (curves.evaluations.last, curves.num_damaged) == ({}, 0)
