"""CVAT's XML for images and for video, as it exports tasks and projects, and damaged files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.detection.source import open_source
from boxcrew.data.images.reading import write_image
from boxcrew.testing.sources import check_invariants
from tests.helpers.sources import problem_lines, records_by_key, split_sizes

LABELS = """<labels>
  <label><name>tea</name><color>#fa3253</color><type>any</type><attributes></attributes></label>
  <label><name>jam</name><type>rectangle</type><attributes><attribute><name>ripe</name></attribute></attributes></label>
  <label><name>lane</name><type>polyline</type><attributes></attributes></label>
  <label><name>scene</name><type>tag</type><attributes></attributes></label>
</labels>"""


def document(body: str, *, meta: str = "", owner: str = "task") -> str:
    head = f"<meta><{owner}><id>4</id>{meta}{LABELS}</{owner}><dumped>2024-05-01</dumped></meta>"
    start = '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n<version>1.1</version>'
    return f"{start}\n{head}\n{body}</annotations>"


def image(name: str, *shapes: str, extra: str = "") -> str:
    return f'<image id="0" name="{name}" {extra} width="40" height="30">{"".join(shapes)}</image>'


def box(label: str, xyxy: tuple[object, ...], extra: str = "", inner: str = "") -> str:
    sides = " ".join(f'{k}="{v}"' for k, v in zip(("xtl", "ytl", "xbr", "ybr"), xyxy, strict=False))
    return f'<box label="{label}" source="manual" occluded="0" {sides} z_order="0" {extra}>{inner}</box>'


TEA = box("tea", (1, 2, 11, 12))


def draw(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_image(root / name, np.zeros((30, 40, 3), dtype=np.uint8))


def opened(root: Path, *shapes: str) -> tuple[list[list[float]], list[str], str]:
    """The boxes and class names of an image with these shapes, and the problems."""
    draw(root, "images/a.png", "images/z.png")
    (root / "annotations.xml").write_text(document(image("a.png", *shapes) + image("z.png", TEA)))
    source = open_source(root)
    assert source.format == "cvat"
    assert source.classes == ("tea", "jam")
    check_invariants(source)
    target = records_by_key(source)["images/a.png"].target
    return target.boxes.tolist(), [source.classes[label] for label in target.labels], problem_lines(source)


def test_shapes_become_boxes(tmp_path: Path) -> None:
    boxes, names, problems = opened(
        tmp_path,
        box("tea", ("1.50", "2.00", "11.00", "12.25"), 'group_id="0"'),
        box("jam", (10, 10, 20, 14), 'rotation="90.0"'),
        '<polygon label="jam" occluded="0" points="5.00,5.00;15.00,3.00;20.00,25.00" z_order="0"></polygon>',
        '<ellipse label="tea" cx="20" cy="15" rx="10" ry="4" rotation="90"></ellipse>',
        '<mask label="tea" rle="1, 2" left="3" top="4" width="5" height="6"></mask>',
        '<cuboid label="tea" xtl1="5" ytl1="6" xbl1="5" ybl1="16" xtr1="15" ytr1="6" xbr1="15" ybr1="16" '
        'xtl2="8" ytl2="4" xbl2="8" ybl2="14" xtr2="18" ytr2="4" xbr2="18" ybr2="14"></cuboid>',
        '<tag label="scene" source="manual"></tag>',
    )
    wanted: list[list[float]] = [
        [1.5, 2, 11, 12.25],
        [13, 7, 17, 17],
        [5, 3, 20, 25],
        [16, 5, 24, 25],
        [3, 4, 8, 10],
        [5, 4, 18, 16],
    ]
    np.testing.assert_allclose(boxes, wanted, atol=1e-5)
    assert names == ["tea", "jam", "jam", "tea", "tea", "tea"]
    assert problems.count("\n") == 0  # only the split that is made


def test_what_cannot_be_used_is_named_and_the_rest_used(tmp_path: Path) -> None:
    boxes, names, problems = opened(
        tmp_path,
        '<polyline label="lane" points="1,1;5,9"></polyline>',
        '<points label="tea" points="1,1"></points>',
        '<skeleton label="tea"><points label="1" points="1,1"></points></skeleton>',
        box("tea", (1, 2, 11)),
        box("tea", (1, 2, "x", 12)),
        box("tea", (1, 2, "nan", 12)),
        box("", (1, 2, 11, 12)),
        box("coffee", (1, 2, 11, 12)),
        '<polygon label="tea" points="1,1"></polygon>',
        '<polygon label="tea" points="1,1;2;3,3"></polygon>',
        '<polygon label="tea" points="1,1;nan,9;3,3"></polygon>',
        '<ellipse label="tea" cx="20" cy="15" rx="10"></ellipse>',
        box("tea", (1, 2, 11, 12), 'rotation="inf"'),
        box("jam", (1, 2, 11, 12)),
    )
    assert (boxes, names) == ([[1, 2, 11, 12]], ["jam"])
    for expected in (
        "annotations.xml image a.png polyline 1 (lane): polyline has no box (left out)",
        "points 2 (tea): points has no box",
        "skeleton 3 (tea): skeleton has no box",
        "box 4 (tea): box is damaged: ybr is None",
        "box 5 (tea): box is damaged: xbr is 'x'",
        "box 6 (tea): box [1, 2, nan, 12] has a side that is not a number",
        "box 7 (no label): has no label",
        "class 'coffee' is not among the classes of the set",
        "polygon 9 (tea): polygon is damaged: it has fewer than two points",
        "polygon 10 (tea): polygon is damaged: '2' is not a point",
        "polygon 11 (tea): box [nan, nan, nan, nan] has a side that is not a number",
        "ellipse 12 (tea): ellipse is damaged: ry is None",
        "box 13 (tea): box is damaged: its rotation is inf",
    ):
        assert expected in problems, expected


def test_a_project_with_subsets(tmp_path: Path) -> None:
    draw(tmp_path, "images/Train/a.png", "images/Train/b.png", "images/Validation/a.png", "images/Test/c.png")
    body = image("a.png", TEA, extra='subset="Train"') + image("b.png", extra='subset="Train"')
    body += image("a.png", box("jam", (1, 1, 9, 9)), extra='subset="Validation" task_id="5"')
    body += image("c.png", TEA, extra='subset="Test"')
    (tmp_path / "annotations.xml").write_text(document(body, owner="project"))
    for path in (tmp_path, tmp_path / "annotations.xml"):
        source = open_source(path)
        assert split_sizes(source) == {"train": 2, "val": 1, "test": 1}
        assert source.split("val")[0].target.labels.tolist() == [1]
        assert [problem.kind for problem in source.problems] == ["empty-annotation"]


def test_one_file_for_each_split(tmp_path: Path) -> None:
    for folder, subset in (("one", "Train"), ("two", "Validation")):
        draw(tmp_path / folder, "images/a.png", "images/b.png")
        text = document(image("a.png", TEA) + image("b.png", TEA), meta=f"<subset>{subset}</subset>")
        (tmp_path / folder / "annotations.xml").write_text(text)
    assert split_sizes(open_source(tmp_path)) == {"train": 2, "val": 2}
    draw(tmp_path / "flat", "a.png", "b.png")
    for name, file in (("a.png", "train.xml"), ("b.png", "val.xml")):
        (tmp_path / "flat" / file).write_text(document(image(name, TEA)))
    assert split_sizes(open_source(tmp_path / "flat")) == {"train": 1, "val": 1}


@pytest.mark.parametrize(
    ("flag", "value", "is_set"),
    [
        ("difficult", "true", True),
        ("is_crowd", "true", True),
        ("difficult", "false", False),
        ("ripe", "true", False),
        ("difficult", "", False),
    ],
)
def test_attributes(flag: str, value: str, is_set: bool, tmp_path: Path) -> None:
    opened(tmp_path, box("tea", (1, 2, 11, 12), inner=f'<attribute name="{flag}">{value}</attribute>'))
    target = records_by_key(open_source(tmp_path))["images/a.png"].target
    assert bool(target.crowd[0] if flag == "is_crowd" else target.difficult[0]) == is_set


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.png", "there is no image file absent.png"),
        ("../../secret.png", "there is no image file ../../secret.png"),
        ("", "has no name"),
    ],
)
def test_an_unknown_image_is_named(name: str, message: str, tmp_path: Path) -> None:
    draw(tmp_path / "set", "images/a.png", "images/b.png", "images/later.png")
    draw(tmp_path, "secret.png")
    body = image("a.png", TEA) + image("b.png", TEA) + image(name, TEA)
    (tmp_path / "set" / "annotations.xml").write_text(document(body))
    source = open_source(tmp_path / "set")
    assert set(records_by_key(source)) == {"images/a.png", "images/b.png"}
    assert message in problem_lines(source)
    assert "images/later.png: is in no annotation file" in problem_lines(source)


BOMB = '<!DOCTYPE a [<!ENTITY b "ha"><!ENTITY c "&b;&b;">]><annotations><meta>&c;</meta></annotations>'


@pytest.mark.parametrize("text", [document(image("a.png", TEA))[:-40], BOMB])
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    draw(tmp_path, "a.png", "b.png", "c.png")
    (tmp_path / "bad.xml").write_text(text)
    with pytest.raises(DataError, match="has no usable training image") as raised:
        open_source(tmp_path)
    assert "bad.xml: cannot be parsed" in raised.value.advice
    (tmp_path / "good.xml").write_text(document(image("b.png", TEA) + image("c.png", TEA)))
    source = open_source(tmp_path)
    assert set(records_by_key(source)) == {"b.png", "c.png"}
    assert "bad.xml: cannot be parsed" in problem_lines(source)


def track(label: str, *frames: tuple[int | str, int], shape: str = "box") -> str:
    items = "".join(
        f'<{shape} frame="{frame}" outside="{outside}" occluded="0" keyframe="1" '
        'xtl="1" ytl="2" xbr="11" ybr="12" z_order="0"></box>'
        for frame, outside in frames
    )
    return f'<track id="0" label="{label}" source="manual">{items}</track>'


VIDEO = "<mode>interpolation</mode><original_size><width>40</width><height>30</height></original_size>"


def test_a_video_whose_frames_are_images(tmp_path: Path) -> None:
    draw(tmp_path, *(f"images/frame_{number:06d}.png" for number in (0, 1, 2, 3, 9)))
    body = track("tea", (0, 0), (1, 0), (3, 1)) + track("jam", (1, 0), (3, 0), (4, 0), ("x", 0))
    (tmp_path / "annotations.xml").write_text(document(body, meta=VIDEO))
    source = open_source(tmp_path)
    labels = {Path(key).stem[-1]: r.target.labels.tolist() for key, r in records_by_key(source).items()}
    assert labels == {"0": [0], "1": [0, 1], "2": [], "3": [1]}
    assert records_by_key(source)["images/frame_000000.png"].target.boxes.tolist() == [[1, 2, 11, 12]]
    assert "annotations.xml frame 4: has no image (left out)" in problem_lines(source)
    assert "frame is 'x', not a number" in problem_lines(source)
    assert "frame_000009.png: is in no annotation file" in problem_lines(source)


def test_a_video_without_its_frames_gets_advice(tmp_path: Path) -> None:
    (tmp_path / "shop.mp4").write_bytes(b"video")
    (tmp_path / "annotations.xml").write_text(document(track("tea", (0, 0), (1, 0)), meta=VIDEO))
    with pytest.raises(DataError, match="is about a video, and none of its 2 annotated frames") as raised:
        open_source(tmp_path)
    assert "frame_000000" in raised.value.advice


def test_voc_files_are_not_taken_for_cvat_nor_the_other_way_round(tmp_path: Path) -> None:
    draw(tmp_path, "a.png", "b.png")
    for name in ("a", "b"):
        (tmp_path / f"{name}.xml").write_text(f"<annotation><filename>{name}.png</filename></annotation>")
    assert open_source(tmp_path).format == "voc"
