"""The command `doctor`: check the installation and the machine."""

import json
import sys

import click

from bcmdist.app.cli.options import Command, json_option


@click.command(cls=Command)
@json_option
def doctor(as_json) -> None:
    """Check that this machine can do the work.

    Example: bcmdist doctor
    """
    from bcmdist.app.doctor import examine  # quick start

    findings = examine()
    failed = [f["check"] for f in findings if not f["ok"]]
    if as_json:
        click.echo(json.dumps({"ok": not failed, "checks": findings}))
    else:
        for f in findings:
            click.echo(f"{'ok  ' if f['ok'] else 'FAIL'}  {f['check']:16}  {f['found']}")
    if failed:
        sys.exit(1)
