"""Building blocks of networks, as plain PyTorch modules and functions on tensors.

Backbones, necks, layers and complete small networks; default boxes and their matching; losses, initialization
and regularization; weight files. Nothing here knows data sets, tasks or devices: `detectors` and `tasks` put
the blocks together. `network.Network` is the base class of everything that is trained.
"""
