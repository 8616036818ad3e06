"""Examining is done on what was held out of training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boxcrew.core.config import read_yaml, to_yaml
from boxcrew.core.errors import DataError
from boxcrew.data.detection.source import open_source
from boxcrew.data.detection.writers import write_source
from boxcrew.nets.weights import read_weights, save_weights
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.validate import ValConfig, validate
from tests.helpers.copies import copied
from tests.helpers.made_examples import make_csv
from tests.helpers.untrained import untrained_run


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return make_csv(tmp_path)


@pytest.fixture
def run(tmp_path: Path, table: Path) -> Path:
    task = {"name": "classification", "net": {"name": "fc", "widths": [8]}}
    return untrained_run(tmp_path / "run", {"task": task, "data": str(table), "seed": 7})


def numbers(config: ValConfig) -> dict[str, float]:
    metrics: dict[str, float] = validate(config, Screen())["best"]["numbers"]
    return metrics


def test_data_that_is_named_is_split_with_the_seed_of_the_run(run: Path, table: Path) -> None:
    own = numbers(ValConfig(run=run))
    assert numbers(ValConfig(run=run, data=str(table))) == pytest.approx(own, rel=1e-6)
    weights = run / "weights" / "best.safetensors"
    assert numbers(ValConfig(run=weights, data=str(table))) == pytest.approx(own, rel=1e-6)


def test_another_seed_holds_out_others(run: Path, table: Path) -> None:
    """The seed is that of the weights: an edit of `config.yaml` does not matter."""
    stored = run / "config.yaml"
    own = numbers(ValConfig(run=run))
    stored.write_text(stored.read_text().replace("seed: 7", "seed: 8"))
    assert numbers(ValConfig(run=run, data=str(table))) == pytest.approx(own, rel=1e-6)
    file = run / "weights" / "best.safetensors"
    weights = read_weights(file)
    save_weights(file, weights.state, {**(weights.meta or {}), "seed": 8})
    assert numbers(ValConfig(run=run, data=str(table)))["val_loss"] != pytest.approx(own["val_loss"])


def test_weights_alone_have_no_data(run: Path) -> None:
    with pytest.raises(DataError, match="has no data of its own"):
        validate(ValConfig(run=run / "weights" / "best.safetensors"), Screen())


def num_judged(config: ValConfig) -> dict[str, int]:
    return {rates["name"]: rates["num_examples"] for rates in validate(config, Screen())["best"]["classes"]}


def write_trees(file: Path, oaks: int, elms: int) -> Path:
    rows = [f"{10 + index / 7},green,{'oak' if index < oaks else 'elm'}" for index in range(oaks + elms)]
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(["height,color,kind", *rows]) + "\n")
    return file


def test_all_of_other_data_can_be_judged(run: Path, tmp_path: Path) -> None:
    other = write_trees(tmp_path / "new.csv", oaks=30, elms=20)
    assert sum(num_judged(ValConfig(run=run, data=str(other))).values()) == 10  # a split is made
    assert num_judged(ValConfig(run=run, data=str(other), split="all")) == {"elm": 20, "oak": 30}


def test_data_that_is_judged_needs_nothing_to_train_on(run: Path, tmp_path: Path) -> None:
    """Classes are those that the network knows, whatever this set would teach."""
    write_trees(tmp_path / "new" / "test.csv", oaks=3, elms=4)
    config = ValConfig(run=run, data=str(tmp_path / "new"), split="test")
    assert num_judged(config) == {"elm": 4, "oak": 3}
    write_trees(tmp_path / "new" / "train.csv", oaks=9, elms=0)
    assert num_judged(config) == {"elm": 4, "oak": 3}
    assert num_judged(config.model_copy(update={"split": "all"})) == {"elm": 4, "oak": 12}


def test_boxes_are_read_as_the_settings_say_or_those_of_the_run(
    tiny_run: Path, tiny_set: Path, tmp_path: Path
) -> None:
    folder, run = tmp_path / "corners", tmp_path / "run"
    write_source(open_source(tiny_set), folder, format="coco")
    for file in (folder / "annotations").iterdir():
        content = json.loads(file.read_text())
        for item in content["annotations"]:
            x, y, width, height = item["bbox"]
            item["bbox"] = [x, y, x + width, y + height]
        file.write_text(json.dumps(content))
    expected = numbers(ValConfig(run=tiny_run, data=str(tiny_set)))
    assert numbers(ValConfig(run=tiny_run, data=str(folder), boxes="xyxy")) == pytest.approx(
        expected, rel=1e-4
    )
    copied(tiny_run, run)
    stored = RunConfig.of(read_yaml(run / "config.yaml")).changed(
        {"data": {"path": str(folder), "boxes": "xyxy"}}
    )
    (run / "config.yaml").write_text(to_yaml(stored))
    assert numbers(ValConfig(run=run)) == pytest.approx(expected, rel=1e-4)
    given = ValConfig.of({"run": run, "boxes": "auto"})
    assert numbers(given) != pytest.approx(expected, rel=1e-4)


def test_all_photos_can_be_judged(tiny_run: Path, tiny_set: Path) -> None:
    report = validate(ValConfig(run=tiny_run, data=str(tiny_set), split="all"), Screen())["best"]
    objects = sum(rates["num_objects"] for rates in report["classes"])
    source = open_source(tiny_set)
    assert objects == sum(len(record.target) for split in source.splits.values() for record in split)
