"""Readers of detection data sets, one file for each format, registered in `source.SOURCES`.

Each finds its files (`detect`), parses them into annotations, and leaves repair, splits and records to
`annotations.Collector`.
"""
