"""The `boxcrew` command line.

`main` declares the commands and their help; each command has a module that turns words (`key=value`) into
settings, calls `boxcrew.api` or `boxcrew.train`, and prints the result on the screen or as JSON.
"""
