"""Plans: how a run uses its hardware, decided before the first step.

`search.make_plan` is a pure function of a `Machine`, a `Workload`, a `PlanRequest` and what was `Observed`:
`layouts` proposes devices and processes and divides the batch, `cost` predicts the seconds (`speed`)
and bytes (`memory`) of every `Candidate`, and `search` chooses one. `hosts` joins the plans of several hosts.
The result is a `plan.Plan`, which `deploy` executes; `reasons` says in words why it was chosen.
"""
