"""The command `doctor`: check the installation and the machine, or a model directory."""

import json
import sys

import click

from bcmdist.app.cli.options import Command, json_option


@click.command(cls=Command)
@click.option("--model", metavar="DIR", help="Check this model directory instead: each commit, blob and row.")
@json_option
def doctor(model, as_json) -> None:
    """Check that this machine can do the work, or that a model directory is whole.

    \b
    Example: bcmdist doctor
             bcmdist doctor --model m
    """
    from bcmdist.app.doctor import examine, examine_model  # quick start

    findings = examine() if model is None else examine_model(model)
    failed = [f["check"] for f in findings if not f["ok"]]
    if as_json:
        click.echo(json.dumps({"ok": not failed, "checks": findings}))
    else:
        for f in findings:
            click.echo(f"{'ok  ' if f['ok'] else 'FAIL'}  {f['check']:16}  {f['found']}")
    if failed:
        sys.exit(1)
