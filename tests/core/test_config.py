"""Words and files become settings; mistakes become one line that names the key and the value."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from boxcrew.core.config import Tree, lift, merge, parse_words, put, read_yaml, to_yaml
from boxcrew.core.errors import UsageError
from boxcrew.train.config import CHOICES, RunConfig

BASE = RunConfig.of({"epochs": 1})


def changed(*words: str) -> RunConfig:
    return BASE.changed(parse_words(words)[1])


def message(*words: str) -> str:
    with pytest.raises(UsageError) as caught:
        changed(*words)
    return caught.value.message


@pytest.mark.parametrize("words", [("batch=8",), ("--batch=8",), ("--batch", "8"), ("--batch", "8", "shelf")])
def test_the_spellings_of_a_setting_mean_the_same(words: tuple[str, ...]) -> None:
    positional, settings = parse_words(words)
    assert settings == {"batch": "8"}
    assert positional == list(words[2:])


def test_a_flag_alone_is_true_before_other_settings_and_at_the_end() -> None:
    assert parse_words(["--summaries.graph", "batch=8", "--a-b", "--c"])[1] == {
        "summaries": {"graph": "true"},
        "batch": "8",
        "a_b": "true",
        "c": "true",
    }
    assert changed("--summaries.graph").summaries.graph
    assert not changed("summaries.graph=false").summaries.graph


def test_values_keep_their_equals_signs_and_negative_numbers() -> None:
    assert parse_words(["name=a=b", "--seed", "-1", "train"]) == (["train"], {"name": "a=b", "seed": "-1"})


@pytest.mark.parametrize("text", ["[Enter KING]", "{x", "none", "~", "7"])
def test_what_is_meant_verbatim_stays_as_it_is(text: str) -> None:
    assert parse_words([f"text={text}", "other=none"], verbatim={"text"})[1] == {"text": text, "other": None}


@pytest.mark.parametrize("word", ["=3", "--", "--=3"])
def test_a_word_without_a_key_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="not a setting"):
        parse_words([word])


def test_unknown_keys_are_answered_with_the_nearest() -> None:
    assert message("detector.sise=300") == "detector.sise: no such setting; did you mean 'size'?"
    assert message("detector=ssd", "detector.scale=voc").endswith("did you mean 'scales'?")
    assert message("bacth=3") == "bacth: no such setting; did you mean 'batch'?"
    assert message("loader.wokers=3") == "loader.wokers: no such setting; did you mean 'workers'?"


def test_unknown_keys_near_nothing_are_answered_with_all() -> None:
    assert message("guard.zzz=1") == "guard.zzz: no such setting; there are: failures, spike, window"


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (("batch=0",), "batch: ", "'0'"),
        (("batch=many",), "batch: ", "'many'"),
        (("optim.rate=-1",), "optim.rate: ", "'-1'"),
        (("optim.rate=inf",), "optim.rate: ", "'inf'"),
        (("epochs=nan",), "epochs: ", "'nan'"),
        (("detector.nms_iou=1.5",), "detector.nms_iou: ", "'1.5'"),
        (("detector.match_iou=0",), "detector.match_iou: ", "'0'"),
        (("detector=ssd", "detector.size=400"), "detector.size: ", "'400'"),
        (("detector=ssd", "detector.size=300.5"), "detector.size: ", "'300.5'"),
        (("detector=ssd", "detector.size=null"), "detector.size: ", "None"),
        (("detector=ssd", "detector.size=[300, 512]"), "detector.size: ", "[300, 512]"),
        (("deploy.threads=some",), "deploy.threads: ", "'some'"),
        (("transforms.fill=[1, 2, 300]",), "transforms.fill.2: ", "300"),
        (("data=[a, b]",), "data.path: ", "['a', 'b']"),
        (("data.path.x=3",), "data.path: ", "{'x': '3'}"),
    ],
)
def test_a_wrong_value_is_named_with_its_full_key(words: tuple[str, ...], key: str, value: str) -> None:
    text = message(*words)
    assert text.startswith(key)
    assert text.endswith(f", got {value}")
    assert "\n" not in text


@pytest.mark.parametrize(
    ("word", "start"),
    [
        ("out=s4://bucket/run", "out=s4://bucket/run: s4:// is not supported"),
        ("plan=s3://bucket/plan.json", "plan=s3://bucket/plan.json: s3:// is not supported here"),
        ("data=s4://bucket/photos", "data.path=s4://bucket/photos: s4:// is not supported"),
        ("plan=https://example.org/plan.json", "plan=https://example.org/plan.json: https:// is not"),
        ("init={kind: resume, run: 'file://a/b'}", "init.run=file://a/b: file:// is not supported"),
        ("init={kind: finetune, checkpoint: 'S3://a'}", "init.checkpoint=S3://a: S3:// is not supported"),
    ],
)
def test_a_url_is_refused_where_a_path_belongs(word: str, start: str) -> None:
    """As a path it would be a local directory named `s3:`."""
    assert message(word).startswith(start)


def test_a_url_that_has_become_a_path_is_refused_too() -> None:
    with pytest.raises(UsageError, match="out=s3:/bucket/run: s3:// is not supported"):
        RunConfig.of({"out": Path("s3://bucket/run")})
    assert RunConfig.of({"out": Path("runs:1/a"), "steps": 1}).out == Path("runs:1/a")


def test_all_that_a_union_takes_is_said() -> None:
    assert "'auto'" in message("deploy.threads=some")
    assert "'bf16'" in message("deploy.precision=fp99")
    assert "'auto'" in message("deploy.precision=fp99")


def test_a_setting_that_must_be_given_is_asked_for() -> None:
    assert message("init=finetune") == "init.checkpoint: must be given"


def test_a_group_without_a_shorthand_takes_no_value() -> None:
    assert (
        message("saver=3") == "saver: a group of settings; set one of them, for example saver.every_epochs=…"
    )


def test_wrong_choices_are_answered_with_the_nearest() -> None:
    assert message("detector=sssd").endswith("did you mean 'ssd'?")
    assert message("init=finetun").endswith("did you mean 'finetune'?")


def test_a_task_that_there_is_not() -> None:
    assert message("task=knitting").startswith("task=knitting: no such task; there are: classification, det")


def test_default_boxes_must_grow() -> None:
    assert message("detector.min_scale=0.9", "detector.max_scale=0.2").startswith("detector.min_scale=0.9: ")


@pytest.mark.parametrize("swap", [False, True])
def test_a_group_and_its_settings_can_be_given_in_either_order(swap: bool) -> None:
    words = ["data=photos", "data.format=voc"]
    config = changed(*(words[::-1] if swap else words))
    assert (config.data.path, config.data.format) == ("photos", "voc")


@pytest.mark.parametrize("swap", [False, True])
def test_a_choice_and_its_settings_can_be_given_in_either_order(swap: bool) -> None:
    words = ["detector=ssd", "detector.scales=coco", "size=512"]
    config = changed(*(words[::-1] if swap else words))
    detector = config.tree()["detector"]
    assert detector | {"name": "ssd", "scales": "coco", "size": 512} == detector


def test_lists_come_with_commas_or_brackets() -> None:
    wanted = ("backbone.*", "class_heads.*")
    assert changed("trainable=backbone.*, class_heads.*").trainable == wanted
    assert changed("trainable=[backbone.*, class_heads.*]").trainable == wanted
    assert changed("unfreeze={0.3: 'a.*,b.*'}").unfreeze == {0.3: ("a.*", "b.*")}


def test_null_takes_a_setting_away() -> None:
    config = changed("steps=5", "time=90s", "evaluation.patience=3")
    assert (config.steps, config.time, config.evaluation.patience) == (5, 90.0, 3)
    for word in ("null", "none", "None", "~"):
        again = config.changed(parse_words([f"time={word}", f"evaluation.patience={word}"])[1])
        assert (again.steps, again.time, again.evaluation.patience) == (5, None, None)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("task=classification", "augment.policy=none"), ("augment", "policy")),
        (("task=gan", "augment.policy=none"), ("augment", "policy")),
        (("task=gan", "task.norm=none"), ("task", "norm")),
    ],
)
def test_none_is_a_value_where_it_is_one_of_the_choices(words: tuple[str, ...], key: tuple[str, str]) -> None:
    group, name = key
    assert changed(*words).tree()[group][name] == "none"
    assert message(words[0], f"{group}.{name}=nine").startswith(f"{group}.{name}: ")


def test_broken_lists_are_refused() -> None:
    with pytest.raises(UsageError, match="not a list or map"):
        parse_words(["trainable=[a"])


def test_choosing_another_detector_starts_afresh() -> None:
    first = changed("detector.backbone=resnet18", "detector.nms_iou=0.6")
    assert first.changed({"detector": "ssd"}).task == changed("detector=ssd").task
    assert first.changed({"detector": "ssdlite"}).task == first.task
    kept = first.changed({"detector": {"size": 200}}).tree()["detector"]
    assert kept == first.tree()["detector"] | {"size": 200}


def test_merge_changes_neither_of_its_arguments_and_shares_nothing_with_them() -> None:
    base: Tree = {"detector": {"name": "ssd", "list": [1]}, "batch": 3}
    change: Tree = {"detector": {"name": "ssdlite", "list": [2]}, "out": {"deep": [3]}}
    before = copy.deepcopy((base, change))
    merged = merge(base, change, choices=CHOICES)
    assert merged == {"detector": {"name": "ssdlite", "list": [2]}, "batch": 3, "out": {"deep": [3]}}
    merged["detector"]["list"].append(9)
    merged["out"]["deep"].append(9)
    assert (base, change) == before


def test_put_keeps_what_was_given_to_the_group_itself() -> None:
    tree: Tree = {}
    put(tree, "a", "x")
    put(tree, "a.b.c", 1)
    put(tree, "a.b.d", 2)
    assert tree == {"a": {"": "x", "b": {"c": 1, "d": 2}}}
    put(tree, "a", {"e": 3, "b": {"f": 4}})
    assert tree == {"a": {"": "x", "b": {"c": 1, "d": 2, "f": 4}, "e": 3}}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("steps=2", "steps=3"), "steps: given twice, 2 and 3"),
        (("--steps", "2", "steps=3"), "steps: given twice, 2 and 3"),
        (("steps=none", "steps=3"), "steps: given twice, None and 3"),
        (("optim.rate=1", "optim={rate: 2}"), "optim.rate: given twice, 1 and 2"),
        (("optim={rate: 2}", "optim.rate=1"), "optim.rate: given twice, 2 and 1"),
        (("optim=adam", "optim=sgd"), "optim: given twice, adam and sgd"),
        (("optim=adam", "optim.name=sgd"), "optim=adam and optim.name=sgd: the same setting twice"),
        (("optim=adam", "optim={name: sgd}"), "optim=adam and optim.name=sgd: the same setting twice"),
        (("detector=ssd", "detector.name=ssdlite"), "detector=ssd and detector.name=ssdlite: the same"),
        (("data=a", "data.path=b"), "data=a and data.path=b: the same setting twice"),
        (("size=96", "detector.size=128"), "detector.size: given twice, 128 and 96"),
        (("steps=3", "epochs=2"), "steps=3 and epochs=2: two lengths of the run"),
    ],
)
def test_what_is_said_twice_is_refused(words: tuple[str, ...], problem: str) -> None:
    assert message(*words).startswith(problem)


def test_parts_of_a_group_may_be_given_in_several_words() -> None:
    config = changed("optim={rate: 0.5}", "optim.momentum=0.8", "optim=sgd", "data=a", "data.val=test")
    assert (config.optim.name, config.optim.rate, config.optim.momentum) == ("sgd", 0.5, 0.8)
    assert (config.data.path, config.data.val) == ("a", "test")


def test_a_time_can_be_added_to_another_limit() -> None:
    config = changed("epochs=3", "time=2h")
    assert (config.epochs, config.time, config.steps) == (3, 7200, None)
    assert changed("steps=4", "time=2h").steps == 4
    assert changed("steps=4", "epochs=none").steps == 4


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "a/b", "a\\b", "..", ".", "a/"])
def test_a_name_cannot_leave_the_directory_of_runs(name: str) -> None:
    with pytest.raises(UsageError, match="not a plain name") as caught:
        changed(f"name={name}")
    assert "out=DIR" in caught.value.advice
    with pytest.raises(UsageError, match="not a plain name"):
        BASE.changed({"name": ""})
    assert changed("name=träin 2.1").name == "träin 2.1"


@pytest.mark.parametrize("word", ["epochs=", "data=", "--data=", "data= "])
def test_a_missing_value_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="the value is missing"):
        parse_words([word])
    assert parse_words([word], verbatim={"epochs", "data"})


@pytest.mark.parametrize("word", ["-e", "-epochs", "–epochs", "—epochs"])
def test_a_word_with_another_dash_is_not_taken_for_a_name(word: str) -> None:
    with pytest.raises(UsageError, match="not understood"):
        parse_words([word, "3"])


def test_wrong_numbers_and_maps_are_named_briefly() -> None:
    assert message("epochs=abc") == "epochs: input should be a valid number, got 'abc'"
    assert message("seed=1.5") == "seed: input should be a valid integer, got '1.5'"
    assert message("unfreeze=0.3") == "unfreeze: input should be a valid dictionary, got '0.3'"


def test_a_path_in_the_home_directory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/anna")
    assert parse_words(["data=~/photos", "out=a~/b"])[1] == {"data": "/home/anna/photos", "out": "a~/b"}


def test_lift_moves_settings_of_a_group_to_the_top_and_leaves_the_rest() -> None:
    tree: Tree = {"run": "r", "data": {"": "photos", "boxes": "xyxy"}}
    assert lift(tree, "data", {"boxes", "rescale"}) == {"run": "r", "data": "photos", "boxes": "xyxy"}
    assert lift({"data": {"boxes": "xyxy"}}, "data", {"boxes"}) == {"boxes": "xyxy"}
    assert lift({"data": {"bokses": 1}}, "data", {"boxes"}) == {"data": {"bokses": 1}}
    assert lift({"data": "photos"}, "data", {"boxes"}) == {"data": "photos"}


@pytest.mark.parametrize(
    "words",
    [
        (),
        (
            "data=photos",
            "data.coordinates=percent",
            "data.boxes=yxhw",
            "data.first_class=1",
            "data.rescale=true",
        ),
        ("detector=ssd", "size=512", "detector.scales=coco", "detector.label_smoothing=0.1"),
        ("detector.backbone=resnet18", "detector.finest_stride=8", "batch=7", "seed=3", "device=cpu"),
        ("init=pretrained", "init.weights=net.pth", "init.mean=[0.5, 0.5, 0.5]", "out=runs/größe"),
        ("init=finetune", "init.checkpoint=a b/c", "init.exclude=x.*,y", "init.rename={a: b}", "name=yes"),
        ("time=1h30m", "epochs=null", "steps=12", "trainable=a,b", "unfreeze={0.25: x, 0.5: 'y,z'}"),
        ("optim=adamw", "optim.rate=1e-05", "optim.clip=10", "schedule=cosine", "deploy.threads=2"),
        ("data=123", "data.format=voc", "data.val=test", "transforms.resize=letterbox", "loader.workers=2"),
    ],
)
def test_reading_what_was_written_gives_the_same_settings(words: tuple[str, ...], tmp_path: Path) -> None:
    config = changed(*words)
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(config), encoding="utf-8")
    assert RunConfig.of(read_yaml(file)) == config
    assert RunConfig.of(config.tree()) == config
    if words:
        assert config != BASE


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        BASE.batch = 3  # type: ignore[misc]


def test_a_file_that_holds_no_settings_is_refused_by_name(tmp_path: Path) -> None:
    for content in (b"", b"- a\n- b\n", b"\xff\xfe\x00", b"a: [1\n", b"just words"):
        file = tmp_path / "settings.yaml"
        file.write_bytes(content)
        with pytest.raises(UsageError, match=r"settings\.yaml: "):
            read_yaml(file)
    with pytest.raises(UsageError, match=r"absent\.yaml: no such file"):
        read_yaml(tmp_path / "absent.yaml")


def test_a_limit_given_replaces_those_of_the_recipe() -> None:
    recipe = changed("epochs=10")
    more = recipe.changed(parse_words(["steps=1000"])[1])
    assert (more.steps, more.epochs, more.time) == (1000, None, None)
    both = recipe.changed(parse_words(["steps=1000", "time=2h"])[1])
    assert (both.steps, both.epochs, both.time) == (1000, None, 7200.0)
    assert recipe.changed(parse_words(["batch=3"])[1]).epochs == 10
