"""Augmentations and resizing.

Images with boxes go through `pipeline`: `geometry` moves the image and its boxes as numbers (`view`), one
resampling renders the result, and `color` changes its pixels; `mosaic` makes one sample of several images.
Batches of small images go through `flip_shift_erase` and `policies`, tokens through `tokens`, with random
numbers from `draws`; `mixing` mixes the samples of a step. Nothing here reads files, and no function changes
its arguments.
"""
