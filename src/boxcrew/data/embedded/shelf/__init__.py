"""The embedded product set `shelf`: scenes of eight kinds of product, drawn by code, the same everywhere."""
