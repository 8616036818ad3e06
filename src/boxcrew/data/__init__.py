"""Data: source -> loader -> batch.

1. `detection` opens a set of images with boxes as a `Source` of `Record`s; `examples` opens all other kinds
   (classes, tables, text). `formats` detects the format, `folders` finds files, `embedded` makes sets.
2. `checks` reports defects as `Problem`s: boxes are repaired, images that cannot be used are left out.
   `proposals` computes regions of each image for the detectors that start from them.
3. `loading` orders the samples by seed and epoch; its workers read each image (`images`) and augment it
   (`transforms`) with random numbers that depend only on the sample's draw.
4. Samples of one shape are collated into a `Batch` (`core.types`), which is what tasks and detectors see.

`config` holds the `data.*` settings. Nothing in this package knows about devices or ranks.
"""
