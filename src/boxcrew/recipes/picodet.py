"""Recipes for PicoDet, from weights for COCO."""

from __future__ import annotations

from boxcrew.detectors.picodet import PicoDetConfig
from boxcrew.recipes import RECIPES
from boxcrew.recipes._common import MILD, adamw
from boxcrew.tasks.detection import DetectionConfig
from boxcrew.train.config import RunConfig
from boxcrew.train.init import Pretrained
from boxcrew.train.loop.schedule import ScheduleConfig

_OPTIM = adamw(2e-3, backbone_rate=0.3)


@RECIPES.register("starter")
def starter() -> RunConfig:
    """The default, for CPUs: PicoDet from weights for COCO, with a second backbone that tells classes apart

    make train, or: boxcrew train data=PATH
    On 2 CPU cores: `shelf` in 3 to 5 minutes, AP50 0.96, AP 0.82 on val; 720 photos of groceries
    in 3 minutes, AP50 0.70, AP 0.50, in 15 minutes 0.76 and 0.58.
    """
    return RunConfig(
        epochs=10,
        batch=8,
        init=Pretrained(weights="picodet_coco", class_weights="pplcnetv2"),
        # All but the early stages of the second backbone, whose features serve as they are.
        trainable=(
            "detector.[!c]*",
            "detector.class_path.[!b]*",
            "detector.class_path.backbone.body.stage4*",
        ),
        task=DetectionConfig(
            detector=PicoDetConfig(size=256, class_backbone="pplcnetv2_base"), transforms=MILD
        ),
        optim=_OPTIM,
        schedule=ScheduleConfig(warmup=0.15),  # decision 23
    )


@RECIPES.register("starter_large")
def starter_large() -> RunConfig:
    """The default at 416 px with stronger augmentation: for small objects, and 15 minutes or more

    boxcrew train starter_large data=PATH
    On 2 CPU cores: street photos of clothes (702 to learn from) in 15 minutes, AP50 0.72, AP 0.49 on val,
    where the default has 0.67 and 0.44.
    """
    recipe = starter()
    size, transforms = {"size": 416}, {"mosaic": 0.5, "mixup": 0.1, "jitter": 0.3}
    return recipe.changed({"detector": size, "transforms": transforms})


@RECIPES.register("picodet")
def picodet() -> RunConfig:
    """PicoDet-S, fine-tuned from weights for COCO, which come with a Python package

    boxcrew train picodet data=PATH
    On 2 CPU cores: photos of groceries (720 to learn from) in 3 minutes, AP50 0.56, AP 0.41.
    """
    return RunConfig(
        epochs=12,
        batch=8,
        init=Pretrained(weights="picodet_coco"),
        task=DetectionConfig(detector=PicoDetConfig(size=256), transforms=MILD),
        optim=_OPTIM,
    )
