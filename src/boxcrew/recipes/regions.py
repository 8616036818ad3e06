"""Recipes for detectors that classify the regions of selective search."""

from __future__ import annotations

from boxcrew.core.input_size import InputSize
from boxcrew.data.transforms.pipeline import TransformsConfig
from boxcrew.detectors import ProposalConfig
from boxcrew.detectors.fast_rcnn import FastRcnnConfig
from boxcrew.detectors.rcnn import RcnnConfig
from boxcrew.detectors.sppnet import SppnetConfig
from boxcrew.recipes import RECIPES
from boxcrew.recipes._common import MILD, adamw
from boxcrew.tasks.detection import DetectionConfig
from boxcrew.train.config import RunConfig
from boxcrew.train.init import Pretrained
from boxcrew.train.loop.optim import OptimConfig
from boxcrew.train.loop.schedule import ScheduleConfig

_OPTIM = adamw(1e-3, backbone_rate=0.3)

_HEADS = ("detector.[!b]*",)  # all but the backbone
_LAST_STAGE = ("detector.backbone.body.stage4*", *_HEADS)

_PAPER_SIZE = InputSize((600,), 1000)
# timm numbers the layers of VGG16: conv3_1 is the eleventh.
_CONV3_AND_UP = ("detector.backbone.body.features_1[0-9]*", "detector.backbone.body.features_2[0-9]*")


@RECIPES.register("fast_rcnn")
def fast_rcnn() -> RunConfig:
    """Fast R-CNN on PP-LCNetV2 with ImageNet weights, early layers frozen, and selective search

    boxcrew train fast_rcnn data=PATH
    In 6 minutes of training on 2 CPU cores: AP 0.349 on groceries8_voc (docs/concepts/six-detectors.md).
    """
    return RunConfig(
        epochs=10,
        batch=8,
        init=Pretrained(weights="pplcnetv2"),
        trainable=_LAST_STAGE,
        task=DetectionConfig(detector=FastRcnnConfig(size=256), transforms=MILD),
        optim=_OPTIM,
    )


@RECIPES.register("sppnet")
def sppnet() -> RunConfig:
    """SPPNet on PP-LCNetV2 with ImageNet weights, which stay as they are; SVMs and box regression

    boxcrew train sppnet data=PATH
    In 6 minutes of training on 2 CPU cores, and 46 s for SVMs: AP 0.262 on groceries8_voc.
    """
    return RunConfig(
        epochs=6,
        batch=8,
        init=Pretrained(weights="pplcnetv2"),
        trainable=_HEADS,
        task=DetectionConfig(detector=SppnetConfig(size=256), transforms=MILD),
        optim=_OPTIM,
    )


@RECIPES.register("rcnn")
def rcnn() -> RunConfig:
    """R-CNN on PP-LCNetV2 with ImageNet weights, early layers frozen; SVMs and box regression

    boxcrew train rcnn data=PATH
    In 6 minutes of training on 2 CPU cores, and 10 for SVMs: AP 0.154 on groceries8_voc.
    Crops are taken from images of 512 px; use a larger size= for small objects in large photos.
    """
    return RunConfig(
        epochs=4,
        batch=4,
        init=Pretrained(weights="pplcnetv2"),
        trainable=_LAST_STAGE,
        task=DetectionConfig(detector=RcnnConfig(size=512), transforms=MILD),
        optim=_OPTIM,
    )


@RECIPES.register("fast_rcnn_vgg16")
def fast_rcnn_vgg16() -> RunConfig:
    """Fast R-CNN with VGG16, to the paper: conv3_1 and up are learned, RoI pooling, short side of 600 px

    boxcrew train fast_rcnn_vgg16 data=PATH init.weights=vgg16.pth
    Needs a GPU: an image takes 850 GFLOPs with its 2,000 regions. The fully connected layers begin at random.
    """
    detector = FastRcnnConfig(
        size=_PAPER_SIZE,
        backbone="vgg16",
        stride=16,
        top_down=False,
        neck=512,
        head_width=4096,
        proposals=2000,
        proposal_method="quality",
    )
    return _paper(detector, epochs=16, trainable=("detector.[!b]*", *_CONV3_AND_UP))


@RECIPES.register("sppnet_vgg16")
def sppnet_vgg16() -> RunConfig:
    """SPPNet with VGG16, to the paper: five scales, convolutions as they are, SVMs and box regression

    boxcrew train sppnet_vgg16 data=PATH init.weights=vgg16.pth
    Needs a GPU: an image takes 3,600 GFLOPs at its five scales.
    """
    detector = SppnetConfig(
        size=InputSize((1200,), 2000),
        scales=(0.4, 0.48, 0.573, 0.72, 1.0),
        backbone="vgg16",
        stride=16,
        neck=256,
        head_width=4096,
        proposals=2000,
        proposal_method="quality",
    )
    return _paper(detector, epochs=12, trainable=_HEADS)


@RECIPES.register("rcnn_vgg16")
def rcnn_vgg16() -> RunConfig:
    """R-CNN with VGG16, to the paper: every region is warped to 224 px; SVMs and box regression

    boxcrew train rcnn_vgg16 data=PATH init.weights=vgg16.pth
    Needs a GPU, and patience: an image takes 2,000 passes of 31 GFLOPs, and the features that its SVMs
    learn from are computed on the CPU, in hours for a hundred images.
    """
    detector = RcnnConfig(
        size=_PAPER_SIZE,
        backbone="vgg16",
        crop_size=224,
        neck=512,
        head_width=4096,
        proposals=2000,
        proposal_method="quality",
        regions=64,
    )
    return _paper(detector, epochs=12, trainable=("*",))


def _paper(detector: ProposalConfig, *, epochs: int, trainable: tuple[str, ...]) -> RunConfig:
    """Return the settings that the three papers share: ImageNet weights, two images a step, SGD at 1e-3, a
    tenth of it for the last quarter, decay 5e-4, and mirrored images as the only augmentation.
    """
    return RunConfig(
        epochs=epochs,
        batch=2,
        init=Pretrained(weights="vgg16.pth"),
        trainable=trainable,
        task=DetectionConfig(
            detector=detector, transforms=TransformsConfig(expand=1.0, crop=False, color=0.0)
        ),
        optim=OptimConfig(name="momentum", rate=1e-3, weight_decay=5e-4, clip=10.0, reference_batch=2),
        schedule=ScheduleConfig(name="step", at=(0.75,), warmup=0.0),
    )
