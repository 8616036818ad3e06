"""The loss of SSD as sums, and decoding, on numbers made by hand instead of a network's."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.ops import batched_nms, clip_boxes_to_image

from boxcrew.core.types import Detections, Losses
from boxcrew.detectors.ssdlite import SsdLite
from boxcrew.nets.anchors import to_xyxy
from boxcrew.nets.matching import hard_negatives, match
from boxcrew.nets.static import score_ranks
from boxcrew.testing.detectors import CLASSES, noise_batch


def raw_of(detector: SsdLite, num_images: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    num_anchors = len(detector.anchors)
    scores = torch.randn(num_images, num_anchors, 1 + len(CLASSES), generator=draw)
    return scores, torch.randn(num_images, num_anchors, 4, generator=draw)


def part(targets: Mapping[str, Tensor], images: slice) -> dict[str, Tensor]:
    return {name: value[images] for name, value in targets.items()}


def with_settings(detector: SsdLite, **settings: object) -> SsdLite:
    """The same network under other settings that do not shape it."""
    other = SsdLite.__new__(SsdLite)
    other.__dict__ = {**detector.__dict__, "config": detector.config.model_copy(update=settings)}
    return other


def assert_close(first: Losses, second: Losses) -> None:
    torch.testing.assert_close(dict(first.terms), dict(second.terms))
    torch.testing.assert_close(first.weight, second.weight)


def test_images_together_are_the_sum_of_images_alone(small: SsdLite) -> None:
    targets = noise_batch((64, 64), (3, 0, 1, 5)).targets
    scores, offsets = raw_of(small, 4)
    together = small.multibox_losses(small.anchors, scores, offsets, targets)
    alone = [
        small.multibox_losses(
            small.anchors, scores[i : i + 1], offsets[i : i + 1], part(targets, slice(i, i + 1))
        )
        for i in range(4)
    ]
    assert_close(together, sum(alone[1:], start=alone[0]))
    halves = [
        small.multibox_losses(small.anchors, scores[s], offsets[s], part(targets, s))
        for s in (slice(3), slice(3, 4))
    ]
    assert_close(together, halves[0] + halves[1])


def test_an_image_without_objects_contributes_nothing(small: SsdLite) -> None:
    scores, offsets = raw_of(small, 1)
    losses = small.multibox_losses(small.anchors, scores, offsets, noise_batch((64, 64), (0,)).targets)
    assert float(losses.weight) == 0
    assert [float(value) for value in losses.terms.values()] == [0, 0]


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_that_of_the_formula(small: SsdLite, smoothing: float) -> None:
    detector = with_settings(small, label_smoothing=smoothing)
    targets = noise_batch((64, 64), (3, 4)).targets
    scores, offsets = raw_of(detector, 2)
    losses = detector.multibox_losses(detector.anchors, scores, offsets, targets)
    matched = match(targets["boxes"], targets["labels"] >= 0, to_xyxy(detector.anchors), threshold=0.5)
    class_loss = torch.zeros(matched.shape)
    box_loss = 0.0
    for image, anchor in [(i, a) for i in range(2) for a in range(matched.shape[1])]:
        owner = int(matched[image, anchor])
        label = int(targets["labels"][image, owner]) + 1 if owner >= 0 else 0
        surprise = -scores[image, anchor].log_softmax(dim=0)
        class_loss[image, anchor] = (1 - smoothing) * surprise[label] + smoothing * surprise.mean()
        if owner >= 0:
            wanted = detector.code.encode(targets["boxes"][image, owner], detector.anchors[anchor])
            distances = (offsets[image, anchor] - wanted).abs().tolist()
            box_loss += sum(0.5 * d * d if d < 1 else d - 0.5 for d in distances)
    counted = (matched >= 0) | hard_negatives(class_loss, matched >= 0, ratio=3)
    assert float(losses.weight) == int((matched >= 0).sum())
    assert float(losses.terms["class"]) == pytest.approx(float(class_loss[counted].sum()), rel=1e-4)
    assert float(losses.terms["box"]) == pytest.approx(box_loss, rel=1e-4)


def test_tiny_and_huge_boxes_give_finite_losses_and_gradients(small: SsdLite) -> None:
    boxes = torch.tensor(
        [[[10, 10, 10.01, 10.01], [0, 0, 64, 64], [63.5, 0, 64, 64], [20, 20, 20, 30], [5, 5, 5, 5]]]
    )
    targets = {"boxes": boxes, "labels": torch.zeros(1, 5, dtype=torch.int64)}
    scores, offsets = (raw.requires_grad_() for raw in raw_of(small, 1))
    losses = small.multibox_losses(small.anchors, scores, offsets, targets)
    for gradient in torch.autograd.grad(losses.total(), (scores, offsets)):
        assert gradient.isfinite().all()
    assert losses.total().isfinite()
    assert float(losses.weight) >= 3


def test_numbers_in_the_padding_do_not_matter(small: SsdLite) -> None:
    targets = dict(noise_batch((64, 64), (2, 4)).targets)
    padding = targets["labels"] < 0
    broken = targets | {"boxes": targets["boxes"].masked_fill(padding[..., None], math.nan)}
    scores, offsets = (raw.requires_grad_() for raw in raw_of(small, 2))
    losses = small.multibox_losses(small.anchors, scores, offsets, broken)
    assert_close(losses.detach(), small.multibox_losses(small.anchors, scores, offsets, targets).detach())
    for gradient in torch.autograd.grad(losses.total(), (scores, offsets)):
        assert gradient.isfinite().all()


def test_the_loss_changes_none_of_its_arguments(small: SsdLite) -> None:
    targets = noise_batch((64, 64), (2, 4)).targets
    raw = raw_of(small, 2)
    before = [value.clone() for value in (*raw, *targets.values())]
    small.multibox_losses(small.anchors, *raw, targets)
    assert all(torch.equal(was, now) for was, now in zip(before, (*raw, *targets.values()), strict=True))


def test_extreme_scores_stay_finite(small: SsdLite) -> None:
    scores, offsets = raw_of(small, 1)
    scores = (scores * 1e4).requires_grad_()
    losses = small.multibox_losses(small.anchors, scores, offsets * 1e4, noise_batch((64, 64), (3,)).targets)
    assert torch.autograd.grad(losses.total(), scores)[0].isfinite().all()


def test_half_precision_is_added_up_in_single(small: SsdLite) -> None:
    batch = noise_batch((64, 64), (3, 2))
    with torch.no_grad():
        full = small.losses(batch)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = small.losses(batch)
    assert half.total().dtype == torch.float32
    assert float(half.weight) == float(full.weight)
    torch.testing.assert_close(half.total(), full.total(), rtol=0.05, atol=0)


def raw_for(
    detector: SsdLite, boxes: Tensor, labels: Tensor, anchors: Tensor, score: Tensor
) -> tuple[Tensor, ...]:
    """Raw numbers of one image: background everywhere except at `anchors`, which say these objects."""
    scores = torch.zeros(1, len(detector.anchors), 1 + len(CLASSES))
    scores[..., 0] = 20
    offsets = torch.zeros(1, len(detector.anchors), 4)
    scores[0, anchors] = torch.tensor([0.0] + [-20.0] * len(CLASSES))
    scores[0, anchors, labels + 1] = (score / (1 - score)).log()
    offsets[0, anchors] = detector.code.encode(boxes, detector.anchors[anchors])
    return scores, offsets


def decoded_one_by_one(detector: SsdLite, raw: tuple[Tensor, ...]) -> list[Detections]:
    """Decode with shapes that depend on the data, by torchvision's suppression with rounded scores."""
    images = []
    boxes = clip_boxes_to_image(detector.code.decode(raw[1], detector.anchors), (64, 64))
    for probabilities, places in zip(raw[0].softmax(dim=-1)[..., 1:], boxes, strict=True):
        rounded = score_ranks(probabilities).float()
        anchor = rounded.argsort(dim=0, descending=True, stable=True)[: detector.num_candidates]
        best, rounded = probabilities.gather(0, anchor), rounded.gather(0, anchor)
        labels = torch.arange(len(CLASSES)).expand_as(best)
        keep = best > detector.config.score_threshold
        best, rounded, anchor, labels = best[keep], rounded[keep], anchor[keep], labels[keep]
        order = rounded.argsort(descending=True, stable=True)
        best, anchor, labels = best[order], anchor[order], labels[order]
        unequal = torch.arange(len(order), 0, -1.0)
        kept = batched_nms(places[anchor], unequal, labels, detector.config.nms_iou)
        kept = kept[: detector.config.max_detections]
        kept = kept[best[kept].argsort(descending=True, stable=True)]
        images.append(Detections.of(boxes=places[anchor[kept]], scores=best[kept], labels=labels[kept]))
    return images


@pytest.mark.parametrize("kind", ["random", "ties", "equal", "sparse", "none"])
@pytest.mark.parametrize("settings", [{}, {"max_detections": 7}, {"score_threshold": 0.4, "nms_iou": 0.9}])
def test_decoding_a_batch_is_decoding_each_image(
    small: SsdLite, kind: str, settings: dict[str, float]
) -> None:
    detector = with_settings(small, **settings)
    scores, offsets = raw_of(detector, 0 if kind == "none" else 4, seed=3)
    if kind == "ties":
        scores, offsets = scores.round(), offsets.round()
    elif kind == "equal":
        scores = torch.zeros_like(scores)
    elif kind == "sparse":
        scores[..., 0] += 6
        scores[1::2, :, 0] = 40  # images without detections
    padded = detector.decode((scores, offsets), (64, 64))
    assert padded.boxes.shape == (len(scores), detector.config.max_detections, 4)
    wanted = decoded_one_by_one(detector, (scores, offsets))
    for ours, image in zip(padded.unpad(), wanted, strict=True):
        for name, value in vars(image).items():
            assert np.array_equal(getattr(ours, name), value), name


BOXES = torch.tensor([[2.0, 3, 20, 30], [30, 30, 60, 64], [8, 40, 16, 48]])


def test_boxes_put_in_are_exactly_those_found(small: SsdLite) -> None:
    labels, score = torch.tensor([2, 0, 1]), torch.tensor([0.9, 0.8, 0.7])
    raw = raw_for(small, BOXES, labels, torch.tensor([5, 60, 3]), score)
    (detections,) = small.decode(raw, (64, 64)).unpad()
    torch.testing.assert_close(torch.from_numpy(detections.boxes), BOXES, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(torch.from_numpy(detections.scores), score)
    assert detections.labels.tolist() == labels.tolist()


def test_of_two_that_overlap_the_better_is_kept_within_a_class_only(small: SsdLite) -> None:
    boxes = BOXES[[0, 0, 0, 1]] + torch.tensor([[0.0], [0.5], [0.0], [0.0]])
    labels, score = torch.tensor([1, 1, 0, 1]), torch.tensor([0.6, 0.9, 0.5, 0.4])
    raw = raw_for(small, boxes, labels, torch.tensor([1, 2, 3, 4]), score)
    (detections,) = small.decode(raw, (64, 64)).unpad()
    torch.testing.assert_close(torch.from_numpy(detections.scores), torch.tensor([0.9, 0.5, 0.4]))
    assert detections.labels.tolist() == [1, 0, 1]
    torch.testing.assert_close(torch.from_numpy(detections.boxes)[0], boxes[1], rtol=1e-4, atol=1e-3)
    (lenient,) = with_settings(small, nms_iou=0.99).decode(raw, (64, 64)).unpad()
    assert len(lenient) == 4


def test_weak_and_surplus_detections_are_left_out(small: SsdLite) -> None:
    labels, score = torch.tensor([0, 1, 2]), torch.tensor([0.9, 0.5, 0.2])
    raw = raw_for(small, BOXES, labels, torch.tensor([1, 2, 3]), score)
    assert with_settings(small, score_threshold=0.3).decode(raw, (64, 64)).unpad()[0].labels.tolist() == [
        0,
        1,
    ]
    assert with_settings(small, max_detections=1).decode(raw, (64, 64)).unpad()[0].labels.tolist() == [0]
    assert len(with_settings(small, score_threshold=0.95).decode(raw, (64, 64)).unpad()[0]) == 0


def test_boxes_are_cut_at_the_edge_of_the_image(small: SsdLite) -> None:
    raw = raw_for(
        small, torch.tensor([[-10.0, 5, 80, 70]]), torch.tensor([0]), torch.tensor([7]), torch.tensor([0.9])
    )
    (detections,) = small.decode(raw, (64, 64)).unpad()
    torch.testing.assert_close(
        torch.from_numpy(detections.boxes), torch.tensor([[0.0, 5, 64, 64]]), rtol=1e-4, atol=1e-3
    )


def test_what_the_loss_wants_is_what_decoding_reads(small: SsdLite) -> None:
    """Raw numbers with no loss left decode to the objects: target coding, matching and decoding agree."""
    targets = noise_batch((64, 64), (4,), seed=4).targets
    anchors = to_xyxy(small.anchors)
    matched = match(targets["boxes"], targets["labels"] >= 0, anchors, threshold=0.5)[0]
    positive = (matched >= 0).nonzero().flatten()
    boxes, labels = targets["boxes"][0, matched[positive]], targets["labels"][0, matched[positive]]
    raw = raw_for(small, boxes, labels, positive, torch.full((len(positive),), 0.999))
    losses = small.multibox_losses(small.anchors, raw[0], raw[1], targets)
    assert float(losses.total() / losses.weight) < 0.01
    (detections,) = small.decode(raw, (64, 64)).unpad()
    wanted = {
        (int(c), *b) for c, b in zip(targets["labels"][0], targets["boxes"][0].round().tolist(), strict=True)
    }
    read = {(int(c), *b) for c, b in zip(detections.labels, detections.boxes.round().tolist(), strict=True)}
    assert read == wanted
