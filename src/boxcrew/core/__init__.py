"""The vocabulary that all other packages share. It imports none of them.

`types` has the values that pass between packages (Sample -> Batch -> Losses or Detections), `workload` what a
step costs, `stage` the parts of a training that has several, `config` settings from the command line and
YAML, `registry` things found by name, `errors` the errors a user can meet. `boxes`, `units`, `files`,
`cache`, `parent_process` and `version` are small helpers; `torch_tools/` is what is missing from torch.
"""
