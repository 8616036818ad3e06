"""The routes of the service, a file for each group.

`detect` is our own protocol, `open_inference` and `label_studio` are those of others, `models` and
`health` are for operators.
"""
