"""Processes of boxcrew on the machines of a cluster of Ray, which places them and notices which are lost.

`process` is an actor that runs one command on its machine; `slots` are the resources that commands wait
for; `launch` runs the replicas of a training in them, and begins again with those that are there.
"""
