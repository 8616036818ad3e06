"""Hardware as data: a `Machine` with its `Device`s, their memory and their `Speeds`.

`probe` describes this host, `speed` adds measured speeds and stores them, and `assumed` describes a
machine that is not here (`--assume`), with the GPUs of `cards`. `plan` and `deploy` read the result;
nothing here knows a model.
"""
