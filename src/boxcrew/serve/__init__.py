"""Serves detectors over HTTP, without torch: exported files in, photos in, boxes out.

`run` starts a process (signals, sockets) around `app`, whose outer layer is `middleware`: request ids,
tokens, headers, and one JSON form for all errors (`refusals`). The paths are in `routes`. A photo goes
through `uploads` (limits counted while it is read), `photo` (what may be decoded), `admission` (room and
deadlines) and `pool` (threads that decode and compute) to `answers`. `models` has the files that are
served, and swaps them. `settings` are those of the command; `page` is the page in the browser. `watch` is
another page, of trainings that are running.
"""
