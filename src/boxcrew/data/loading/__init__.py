"""Loaders: from opened data sets to batches.

`order` decides which samples a step has. `loader` asks a `SampleMaker` for them, in the processes of
`workers`, and reports what cannot be read. `detection_samples` and `example_samples` make the samples: they
read, transform and, with `collate`, join them into batches; `mixed_samples` makes mosaics and blends.

The data goes: order -> StepRequest -> SampleMaker -> Batch.
"""
