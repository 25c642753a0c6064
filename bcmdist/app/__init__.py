"""The ways in from outside: command line, jobs."""
