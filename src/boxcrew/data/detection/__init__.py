"""Detection data sets: files of some format -> `Source` -> records of images with boxes, and back.

`source.open_source` detects the format and opens a path. One file in `formats/` for each format parses its
files into annotations; `annotations.Collector` has `record_builder` read image headers and repair boxes, and
makes splits, so that every `Source` holds the same `Record`s and a list of `Problem`s. `named` is the base of
formats whose objects carry class names; `image_index` finds images by the names that tools write; `shapes`
makes boxes of other shapes. `data_yaml`, `cvat_shapes` and `label_studio_regions` serve single formats.
`statistics` counts a set and gives advice. `writers/` writes a source in another format.
"""
