"""A network small enough to be trained in a test."""

BACKBONE = "test_efficientnet"
"""timm's own for tests: convolutions, depthwise ones too, BatchNorms, strides up to 32, and few layers."""

TINY = (f"detector.backbone={BACKBONE}", "size=96", "batch=4", "init=scratch", "trainable=*")
"""Settings that make any SSDLite recipe train in a second; with `detector.name=ssdlite` any recipe."""
