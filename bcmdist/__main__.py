"""`python -m bcmdist`: the command line."""

from bcmdist.app.cli.main import cli

if __name__ == "__main__":
    cli(prog_name="bcmdist")
