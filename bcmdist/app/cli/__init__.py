"""The command line `bcmdist`: a file for each command."""
