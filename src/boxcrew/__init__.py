"""boxcrew: train object detectors on whatever hardware there is: exactly, fast, and explained."""
