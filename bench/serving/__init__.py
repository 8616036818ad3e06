"""Helpers of the benchmarks of `boxcrew serve`: each runs a service as a process and asks it over loopback.

`material` makes the model and the photos, `server` starts services and reads what they cost, `client` is a
lean HTTP client, `load` is a process full of them, and `hostile` makes requests that no service would like
(of `hostile_words` and `photo_files`).
"""
