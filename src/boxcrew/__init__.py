"""boxcrew: train object detectors on whatever hardware there is: exactly, fast, and explained."""

__version__ = "0.1.0"
