"""Contracts that every member of a family keeps: data formats, detectors, strategies, tasks.

A test runs them over a registry, so a new file is tested as soon as it exists, in other projects too.
"""
