"""The command `alias`: names of commits, such as `stable`."""

import click

from bcmdist.app.cli.options import COMMIT, Command, json_option
from bcmdist.app.cli.output import report


@click.group()
def alias() -> None:
    """Set, list and remove names of commits, such as stable; they are given in place of a number.

    A commit is not pruned while an alias names it.

    Example: bcmdist alias set live stable --at 12
    """


def _commits(model):
    """Return the commits of a model directory, which must have some."""
    from bcmdist.committee.mixture_commits import commit_log  # quick start

    commits = commit_log(model)
    commits.newest()
    return commits


@alias.command("set", cls=Command)
@click.argument("model")
@click.argument("name")
@click.option("--at", "commit", type=COMMIT, metavar="N|ALIAS", help="Commit to name [default: the newest].")
@json_option
def set_(model, name, commit, as_json) -> dict:
    """Let NAME stand for a commit of MODEL, whatever it stood for before.

    Example: bcmdist alias set live stable --at 12
    """
    return report({"alias": name, "commit": _commits(model).set_alias(name, commit).commit}, as_json)


@alias.command("list", cls=Command)
@click.argument("model")
@json_option
def list_(model, as_json) -> dict:
    """List the aliases of MODEL and the commits that they name.

    Example: bcmdist alias list live
    """
    return report({"aliases": {name: one.commit for name, one in _commits(model).aliases().items()}}, as_json)


@alias.command("remove", cls=Command)
@click.argument("model")
@click.argument("name")
@json_option
def remove(model, name, as_json) -> dict:
    """Remove the alias NAME of MODEL; the commit stays until `prune` removes it.

    Example: bcmdist alias remove live stable
    """
    _commits(model).remove_alias(name)
    return report({"removed": name}, as_json)
