"""Detection data sets: files of some format -> `Source` -> records of images with boxes, and back.

`source.open_source` detects the format and opens a path. One file in `formats` for each format parses its
files into annotations; `annotations.Collector` has `record_builder` read image headers and repair boxes,
and makes splits, so that every `Source` holds the same `records` and a list of `Problem`s. `opening` does
this for training, and keeps large sets between runs as `column_files`. `named` is the base of formats
whose objects carry class names; `image_index` finds images by the names that tools write; `shapes` makes
boxes of other shapes. These serve single formats: `coco_files` and `coco_shapes`, `csv_layouts`,
`cvat_shapes`, `label_studio_regions`, `tar_shards`, `yolo_labels`, and `data_yaml` and `darknet` with
`data_file`. `json_files` and `safe_xml` parse without trust. `statistics` counts a set and gives advice,
`source_report` writes that as JSON. `writers` writes a source in another format.
"""
