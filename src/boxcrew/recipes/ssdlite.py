"""Recipes for SSDLite on mobile backbones."""

from __future__ import annotations

from boxcrew.detectors.ssdlite import SsdLiteConfig
from boxcrew.recipes import RECIPES
from boxcrew.recipes._common import MILD, adamw
from boxcrew.tasks.detection import DetectionConfig
from boxcrew.train.config import RunConfig
from boxcrew.train.init import Pretrained, Scratch
from boxcrew.train.loop.optim import OptimConfig
from boxcrew.train.loop.schedule import ScheduleConfig


@RECIPES.register("ssdlite")
def ssdlite() -> RunConfig:
    """SSDLite for CPUs: EfficientNet-Lite0 with ImageNet weights, early layers frozen

    boxcrew train ssdlite data=PATH
    On 2 CPU cores: `shelf` in about 4 minutes, AP50 0.94 on val; photos of groceries (720 to learn from) in
    15 minutes, AP50 0.69.
    """
    return RunConfig(
        epochs=10,
        batch=8,
        init=Pretrained(weights="efficientnet_lite0"),
        # The later stages of the backbone, and everything outside it.
        trainable=("detector.backbone.body.blocks.[3456]*", "detector.[!b]*", "detector.b[!a]*"),
        task=DetectionConfig(
            detector=SsdLiteConfig(
                backbone="tf_efficientnet_lite0",
                size=256,
                finest_stride="auto",
                neck=160,
                levels=3,
                min_scale="auto",
                max_scale="auto",
                spacing="growing",
            ),
            transforms=MILD,
        ),
        optim=adamw(3e-3, backbone_rate=0.2),
    )


@RECIPES.register("ssdlite_efficientnet_lite0")
def ssdlite_efficientnet_lite0() -> RunConfig:
    """SSDLite on EfficientNet-Lite0, all layers trained, from the ImageNet weights of its package

    boxcrew train ssdlite_efficientnet_lite0 data=PATH
    On 2 CPU cores 10.5 images a second. Strong augmentation needs many epochs: on 720 photos of groceries
    AP50 is 0.008 after 2 minutes (1.1 of 50 epochs), where `starter` has 0.62 after 3.
    """
    return _fine_tuned("tf_efficientnet_lite0", weights="efficientnet_lite0")


@RECIPES.register("ssdlite_mobilenetv2")
def ssdlite_mobilenetv2() -> RunConfig:
    """SSDLite on MobileNetV2, from a weight file given with init.weights=

    boxcrew train ssdlite_mobilenetv2 data=PATH init.weights=mobilenet_v2.pth
    On 2 CPU cores 13.7 images a second; on 720 photos of groceries AP50 0.006 after 2 minutes (1.6 of 50
    epochs).
    """
    return _fine_tuned("mobilenetv2_100", weights="mobilenetv2_100")


def _fine_tuned(backbone: str, *, weights: str) -> RunConfig:
    return RunConfig(
        epochs=50,
        batch=16,
        init=Pretrained(weights=weights),
        task=DetectionConfig(detector=SsdLiteConfig(backbone=backbone)),
        optim=adamw(2e-3, backbone_rate=0.3, batch=16),
    )


@RECIPES.register("ssdlite320_mobilenetv3")
def ssdlite320_mobilenetv3() -> RunConfig:
    """SSDLite320 on MobileNetV3-Large, from scratch: long, as torchvision trains it

    boxcrew train ssdlite320_mobilenetv3 data=PATH
    On 2 CPU cores 15.2 images a second; on 720 photos of groceries AP50 0.007 after 2 minutes (1.8 of 300
    epochs).
    """
    return RunConfig(
        epochs=300,
        batch=24,
        init=Scratch(),
        task=DetectionConfig(
            detector=SsdLiteConfig(backbone="mobilenetv3_large_100", size=320, min_scale=0.2, max_scale=0.95)
        ),
        optim=OptimConfig(name="momentum", rate=0.05, weight_decay=4e-5, clip=10.0, reference_batch=24),
        schedule=ScheduleConfig(name="cosine", warmup=0.01),
    )
