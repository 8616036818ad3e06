"""A network small enough to be trained in a test."""

TINY = ("detector.backbone=mobilenetv3_small_050", "size=96", "batch=4", "init=scratch", "trainable=*")
"""Settings that make any SSDLite recipe train in a second; with `detector.name=ssdlite` any recipe."""
