"""`python -m boxcrew`: the command, where its script is not at hand."""

from boxcrew.cli.main import main

main()
