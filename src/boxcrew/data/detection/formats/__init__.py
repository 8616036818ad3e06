"""Readers of detection data sets, one file for each format, registered in `source.SOURCES`."""
