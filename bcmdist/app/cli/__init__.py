"""The command line `bcmdist`: one module per command or group of related commands."""
