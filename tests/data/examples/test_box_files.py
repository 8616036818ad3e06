"""Folders of images with annotations that no format reads are not taken for pictures of one class."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.examples.example_set import ExampleOptions, open_examples
from boxcrew.data.images.reading import write_image

TRACKS = {"frames": [{"image": "a.jpg", "tracks": [{"id": 4, "boundingBox": {"x": 1, "y": 2}}]}]}
BOXES = {
    "meta/tracks.json": json.dumps(TRACKS),
    "images/tracks.csv": "frame;id;x;y;width;height\n1;1;2;3;4;5\n",
    "boxes.csv": 'track,bbox\n7,"[1, 2, 3, 4]"\n',
    "boxes.txt": "0 1 2 3 4\n",
    "scene.xml": "<scene><frame number='1'><box left='1' top='2'/></frame></scene>",
}
OTHER = {
    "README.txt": "5 photos of tea, taken in 2024\n",
    "LICENSE.txt": "",
    "metadata.json": json.dumps({"name": "teas", "annotations": "none", "size": [3, 4]}),
    "images/classes.txt": "tea\njam\n",
    "images/prices.csv": "file,price,weight\na.jpg,3,4\n",
    "build.xml": "<project><target name='a'/></project>",
    "scores.txt": "0.5 1 2 3 4\n",
    "broken.json": "\xff\x00",
}


def put_images(root: Path, *names: str) -> None:
    for i, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_image(root / name, np.full((8, 8, 3), 20 * i, dtype=np.uint8))


def put_file(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding="latin-1")


@pytest.mark.parametrize("name", BOXES)
def test_a_folder_with_boxes_of_an_unknown_format_is_refused(name: str, tmp_path: Path) -> None:
    put_images(tmp_path, "images/a.jpg", "images/b.jpg")
    put_file(tmp_path, name, BOXES[name])
    with pytest.raises(DataError, match=f"{name} seems to hold boxes") as caught:
        open_examples(tmp_path, ExampleOptions())
    assert "coco" in caught.value.advice
    assert len(open_examples(tmp_path, ExampleOptions(), format="folder").all_examples()) == 2


@pytest.mark.parametrize(
    "images", [("tea/a.png", "tea/b.png", "jam/c.png"), ("train/tea/a.png", "val/tea/b.png")]
)
def test_other_files_beside_class_folders_do_not_matter(images: tuple[str, ...], tmp_path: Path) -> None:
    put_images(tmp_path, *images)
    for name, text in OTHER.items():
        put_file(tmp_path, name.replace("images", images[0].rpartition("/")[0]), text)
    assert len(open_examples(tmp_path, ExampleOptions()).all_examples()) == len(images)


def test_boxes_in_a_class_folder_are_found(tmp_path: Path) -> None:
    put_images(tmp_path, "train/tea/a.png", "train/jam/b.png")
    put_file(tmp_path, "train/jam/b.json", json.dumps({"bounding_box": [1, 2, 3, 4]}))
    with pytest.raises(DataError, match=r"train/jam/b\.json"):
        open_examples(tmp_path, ExampleOptions())
