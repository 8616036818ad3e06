"""The routes of the service, a file for each group."""
