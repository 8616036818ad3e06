"""SSD300 and SSD512 are the paper's; SSD300 is also torchvision's, number for number."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torchvision.models.detection import ssd300_vgg16
from torchvision.models.detection.image_list import ImageList

from boxcrew.core.errors import ModelError, UsageError
from boxcrew.core.types import Batch
from boxcrew.detectors.ssd import Ssd, SsdConfig, Vgg16
from boxcrew.nets.anchors import to_xyxy
from boxcrew.testing.detectors import noise_batch

CLASSES = tuple("abcdefgh")


@pytest.mark.parametrize(("size", "num_boxes"), [(300, 8732), (512, 24564)])
def test_the_number_of_default_boxes_is_the_papers(size: int, num_boxes: int) -> None:
    for scales in ("voc", "coco"):
        detector = Ssd(SsdConfig.of({"size": size, "scales": scales}), ("a",))
        assert detector.anchors.shape == (num_boxes, 4)
        assert (detector.anchors > 0).all()
        assert (detector.anchors[:, 2:] < size + 0.01).all()


def test_default_boxes_of_ssd512_by_hand() -> None:
    anchors = Ssd(SsdConfig(size=512), ("a",)).anchors
    torch.testing.assert_close(anchors[0], torch.tensor([4, 4, 35.84, 35.84]))
    torch.testing.assert_close(anchors[1, 2:], torch.full((2,), (35.84 * 76.8) ** 0.5))
    torch.testing.assert_close(anchors[64 * 64 * 4], torch.tensor([8, 8, 76.8, 76.8]))
    torch.testing.assert_close(anchors[-4], torch.tensor([256, 256, 460.8, 460.8]))


@pytest.mark.parametrize("size", [300, 512])
def test_heads_give_a_prediction_for_each_default_box(size: int) -> None:
    """Without arithmetic: on the meta device only shapes are computed."""
    detector = Ssd(SsdConfig.of({"size": size}), ("a", "b")).to("meta")
    scores, offsets = detector(torch.empty(1, 3, size, size, device="meta"))
    assert scores.shape == (1, len(detector.anchors), 3)
    assert offsets.shape == (1, len(detector.anchors), 4)


def test_the_input_has_one_of_the_papers_sizes() -> None:
    assert SsdConfig.of({"size": "512"}).size.square == 512
    with pytest.raises(UsageError, match=r"detector\.size: input should be 300 or 512"):
        SsdConfig.of({"size": 320})


def test_a_fresh_backbone_keeps_the_size_of_the_signal() -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        conv4_3, fc7 = Vgg16()(torch.randn(1, 3, 64, 64))
    assert 0.1 < float(conv4_3.std()) < 10
    assert 0.01 < float(fc7.std()) < 10  # fc6 is dilated: on a small image it sees mostly padding


def test_conv4_3_begins_with_features_of_length_20() -> None:
    detector = Ssd(SsdConfig(), ("a",))
    lengths = detector.norm(torch.rand(1, 512, 2, 2)).norm(dim=1)
    torch.testing.assert_close(lengths, torch.full((1, 2, 2), 20.0))


class Pair:
    """torchvision's SSD300 and ours with its state, and what both made of the same images and targets."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.theirs = ssd300_vgg16(weights=None, weights_backbone=None, num_classes=1 + len(CLASSES))
        self.ours = Ssd(SsdConfig(scales="coco"), CLASSES)
        self.ours.load_state_dict(self.ours.convert_foreign(self.theirs.state_dict()), strict=True)
        self.batch = noise_batch((300, 300), (5, 2), seed=1)
        captured: list[dict[str, Tensor]] = []
        hook = self.theirs.head.register_forward_hook(lambda _module, _inputs, out: captured.append(out))
        with torch.no_grad():
            self.raw = self.ours.eval()(self.batch.inputs)
            self.their_losses: dict[str, Tensor] = self.theirs.train()(*self.their_inputs())
        hook.remove()
        self.their_raw = captured[0]

    def their_inputs(self) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
        """Pixels from 0 to 1, and labels that begin after the background."""
        return list(self.batch.inputs / 255), list(_their_targets(self.batch))


def _their_targets(batch: Batch) -> Iterator[dict[str, Tensor]]:
    for boxes, labels in zip(batch.targets["boxes"], batch.targets["labels"], strict=True):
        yield {"boxes": boxes[labels >= 0], "labels": labels[labels >= 0] + 1}


@pytest.fixture(scope="module")
def pair() -> Pair:
    return Pair()


def test_default_boxes_are_torchvisions(pair: Pair) -> None:
    maps = [torch.zeros(1, 1, n, n) for n in (38, 19, 10, 5, 3, 1)]
    theirs = pair.theirs.anchor_generator(ImageList(torch.zeros(1, 3, 300, 300), [(300, 300)]), maps)[0]
    torch.testing.assert_close(to_xyxy(pair.ours.anchors), theirs, rtol=1e-5, atol=1e-3)


def test_raw_outputs_are_torchvisions(pair: Pair) -> None:
    theirs = pair.their_raw["cls_logits"], pair.their_raw["bbox_regression"]
    for ours, other in zip(pair.raw, theirs, strict=True):
        assert float(other.abs().max()) > 1
        torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-4)


def test_losses_are_torchvisions(pair: Pair) -> None:
    ours = pair.ours.multibox_losses(pair.ours.anchors, pair.raw[0], pair.raw[1], pair.batch.targets)
    wanted = {"class": "classification", "box": "bbox_regression"}
    for term, theirs in wanted.items():
        mean = float(ours.terms[term] / ours.weight)
        assert mean == pytest.approx(float(pair.their_losses[theirs]), rel=1e-4)


def test_detections_are_torchvisions(pair: Pair) -> None:
    # Random numbers: a fresh network is so sure of itself that many scores are 1, in no order.
    draw = torch.Generator().manual_seed(0)
    scores, offsets = (2 * torch.randn(2, 8732, n, generator=draw) for n in (1 + len(CLASSES), 4))
    anchors = to_xyxy(pair.ours.anchors)
    raw = {"cls_logits": scores, "bbox_regression": offsets}
    theirs = pair.theirs.postprocess_detections(raw, [anchors] * 2, [(300, 300)] * 2)
    for ours, other in zip(pair.ours.decode((scores, offsets), (300, 300)).unpad(), theirs, strict=True):
        assert len(ours) == 200
        torch.testing.assert_close(torch.from_numpy(ours.scores), other["scores"])
        assert torch.equal(torch.from_numpy(ours.labels) + 1, other["labels"])
        torch.testing.assert_close(torch.from_numpy(ours.boxes), other["boxes"], rtol=1e-4, atol=1e-2)


def test_torchvisions_names_are_known(pair: Pair) -> None:
    state = pair.theirs.state_dict()
    assert pair.ours.convert_foreign(state).keys() == pair.ours.state_dict().keys()
    own = pair.ours.state_dict()
    assert pair.ours.convert_foreign(own) is own
    with pytest.raises(ModelError, match="fc8"):
        pair.ours.convert_foreign(state | {"fc8.weight": torch.zeros(1)})
    mean = pair.ours.normalize.mean / 255
    torch.testing.assert_close(mean, torch.tensor([0.48235, 0.45882, 0.40784]))
    torch.testing.assert_close(pair.ours.normalize.std, torch.ones(3))
