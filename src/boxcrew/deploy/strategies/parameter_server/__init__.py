"""The parameter-server strategy: servers keep the parameters, replicas fetch them and send gradients.

`replica.py` is the strategy as a replica runs it, `server.py` the process that keeps parameters.
"""

from boxcrew.deploy.strategies.parameter_server.replica import ParameterServerReplica

__all__ = ["ParameterServerReplica"]
