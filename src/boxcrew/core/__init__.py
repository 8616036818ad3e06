"""The vocabulary that all other packages share. It imports none of them.

`types` has the values that pass between packages (Sample -> Batch -> Losses or Detections), `workload`
what a step costs, `stage` the parts of a training that has several, `input_size` the size of a detector's
input, `config` settings from the command line and YAML, `registry` things found by name, `errors` the
errors a user can meet. `lock_owner` names the process that uses a directory, `fence` stops any other from
writing to it, and `training_state` tells what a training is doing. `boxes`, `units`, `files`, `cache`,
`parent_process`, `protobuf` and `version` are small helpers. `storage` reads and writes buckets;
`torch_tools` is what is missing from torch.
"""
