"""The kinds of tasks that can be trained: each is one file with its settings, network, loss and data.

`base` has the contract of a network with its loss (`Task`), the settings (`TaskConfig`) and the registry;
`data` has what training, evaluation and reports ask of a task's data (`TrainData`, `EvalData`, `DataSummary`,
all of them in `TaskData`); `facts` has what data decides about a network. `detection`, `classification`,
`sequence` and `gan` are the tasks; others serve them. `cost` computes what a step takes without running it.

Data flows: `TaskData.open` -> facts -> `TaskData.build` -> `Task`; `TaskData.loader` -> batches ->
`Task.forward` -> losses; `TaskData.evaluate` -> an `Evaluation`.
"""
