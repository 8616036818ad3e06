"""Recipes for Faster R-CNN (Ren et al. 2015) with a feature pyramid."""

from __future__ import annotations

from boxcrew.data.transforms.pipeline import TransformsConfig
from boxcrew.detectors._faster_rcnn_config import FasterRcnnConfig
from boxcrew.recipes import RECIPES
from boxcrew.recipes._common import MILD, adamw
from boxcrew.tasks.detection import DetectionConfig
from boxcrew.train.config import RunConfig
from boxcrew.train.init import Pretrained, Scratch
from boxcrew.train.loop.optim import OptimConfig
from boxcrew.train.loop.schedule import ScheduleConfig


@RECIPES.register("faster_rcnn")
def faster_rcnn() -> RunConfig:
    """Faster R-CNN with ResNet-50-FPN, the network of torchvision, whose weights can be fine-tuned

    boxcrew train faster_rcnn data=PATH init=finetune init.checkpoint=fasterrcnn_resnet50_fpn_coco.pth
    or, with weights of the backbone alone: init=pretrained init.weights=resnet50.pth
    Needs a GPU: an image takes 268 GFLOPs at 800 px, and from scratch it needs many epochs.
    """
    return RunConfig(
        epochs=26,
        batch=16,
        init=Scratch(),
        task=DetectionConfig(
            detector=FasterRcnnConfig(
                backbone="resnet50",
                size=800,
                finest_stride=4,
                levels=5,
                pyramid="fpn",
                neck=256,
                anchor_sizes=(32, 64, 128, 256, 512),
                anchor_grid="corners",
                candidates=1000,
                proposals=1000,
                regions=512,
                head_width=1024,
            ),
            transforms=TransformsConfig(expand=1.0, crop=False, jitter=0.0),
        ),
        optim=OptimConfig(name="momentum", rate=0.02, weight_decay=1e-4, clip=10.0, reference_batch=16),
        schedule=ScheduleConfig(name="step", at=(0.62, 0.85), warmup=0.02),
    )


@RECIPES.register("faster_rcnn_mobile")
def faster_rcnn_mobile() -> RunConfig:
    """A CPU-friendly Faster R-CNN: PP-LCNetV2 with ImageNet weights, early layers frozen, small head

    boxcrew train faster_rcnn_mobile data=PATH
    """
    return RunConfig(
        epochs=10,
        batch=8,
        init=Pretrained(weights="pplcnetv2"),
        # The last stage of the backbone, and everything outside it.
        trainable=("detector.backbone.body.stage4*", "detector.[!b]*"),
        task=DetectionConfig(
            detector=FasterRcnnConfig(
                backbone="pplcnetv2_base",
                size=256,
                finest_stride="auto",
                levels=3,
                neck=128,
                candidates=200,
                proposals=100,
                regions=64,
                head_width=512,
                score_threshold=0.01,
            ),
            transforms=MILD,
        ),
        optim=adamw(1e-3, backbone_rate=0.3),
    )
