"""Sets of samples that have one label each, or none: images, table rows, texts.

`example_set.open_examples` detects the format and returns an `ExampleSet`: its splits (each an
`ExampleSplit`) with inputs of one shape, the classes, the problems met in the files, and the `encoding`
that turns new data into the same inputs. Each format is a file in `formats`; what they share lies beside
it: `class_folders`, `crops` of the boxes in `box_files`, `table` with its `columns`, `alphabet` and
`corpus` for texts, and the validation splits of `labeled` samples.
"""
