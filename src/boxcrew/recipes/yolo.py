"""Recipes for detectors of the YOLO family."""

from __future__ import annotations

from boxcrew.detectors.yolo import YoloConfig
from boxcrew.detectors.yolo1 import Yolo1Config
from boxcrew.recipes import RECIPES
from boxcrew.recipes._common import MILD, adamw
from boxcrew.tasks.detection import DetectionConfig
from boxcrew.train.config import RunConfig
from boxcrew.train.init import Pretrained


@RECIPES.register("yolo")
def yolo() -> RunConfig:
    """A present-day YOLO on PP-LCNetV2 with ImageNet weights, early layers frozen

    boxcrew train yolo data=PATH
    On 2 CPU cores 35 images a second; photos of groceries (720 to learn from) in 3 minutes, AP50 0.68.
    """
    return RunConfig(
        epochs=20,
        batch=8,
        init=Pretrained(weights="pplcnetv2"),
        # The last stage of the backbone, and everything outside it.
        trainable=("detector.backbone.body.stage4*", "detector.[!b]*", "detector.b[!a]*"),
        task=DetectionConfig(
            detector=YoloConfig(backbone="pplcnetv2_base", size=256),
            transforms=MILD,
        ),
        optim=adamw(3e-3, backbone_rate=0.2),
    )


@RECIPES.register("yolo1")
def yolo1() -> RunConfig:
    """The first YOLO on EfficientNet-Lite0 with ImageNet weights, early layers frozen

    boxcrew train yolo1 data=PATH
    For 2 CPU cores. Two choices are not the paper's, because they learn more from few images: a head of
    convolutions (with only the head trained, for 20 epochs of 320 `shelf` images, AP50 on val was 0.16,
    against 0.01 with fully connected layers), and AdamW (0.16 against 0.14 with momentum at 1e-2). The
    paper's own: size=448 batch=64 detector.head=fc detector.neck=1024 detector.hidden=4096 optim=momentum
    optim.rate=1e-2 optim.weight_decay=5e-4 schedule=step schedule.at=0.56,0.78 epochs=135 trainable=*
    """
    return RunConfig(
        epochs=20,
        batch=8,
        init=Pretrained(weights="efficientnet_lite0"),
        # The later stages of the backbone, and everything outside it.
        trainable=("detector.backbone.body.blocks.[3456]*", "detector.[!b]*"),
        task=DetectionConfig(
            detector=Yolo1Config(head="conv"),
            transforms=MILD,
        ),
        optim=adamw(1e-3, backbone_rate=0.2),
    )
