"""The strategies a plan can choose, one file or folder each; importing a file registers its strategy.

`single`: one clone. `clones`: several in threads of one process. `ddp`: one process per clone, all with
all parameters. `fsdp`: parameters sharded among processes. `parameter_server`: parameters in server
processes. All are a `Deployment`; `ddp` and `fsdp` share `_micro_batches`, `parameter_server` builds on
`clones`.
"""
