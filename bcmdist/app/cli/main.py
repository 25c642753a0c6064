"""The entry point of the command line `bcmdist`: the group of all commands, and the handling of their errors.

Every command except `serve` takes `--json` (one object on stdout; progress and logs go to stderr). Exit codes:
0 success, 1 refused or failed, 2 usage error, 141 the reader of the output has gone. Heavy packages are imported by the
commands that use them, for a quick start.
"""

import json
import os
import signal
import sys
import traceback
import warnings

import click

from bcmdist import __version__
from bcmdist.app import failures
from bcmdist.app.cli import jobs
from bcmdist.app.cli.alias import alias
from bcmdist.app.cli.bridge import bridge
from bcmdist.app.cli.config import read_defaults
from bcmdist.app.cli.demo import demo
from bcmdist.app.cli.doctor import doctor
from bcmdist.app.cli.fit import fit
from bcmdist.app.cli.importing import import_
from bcmdist.app.cli.info import info
from bcmdist.app.cli.options import Command
from bcmdist.app.cli.output import note_warning, one_line
from bcmdist.app.cli.plot import plot
from bcmdist.app.cli.predict import forecast, predict, score
from bcmdist.app.cli.report import report
from bcmdist.app.cli.revision import backup, forget, ingest, merge, prune, refit, revert
from bcmdist.app.cli.serve import certs, serve, tokens
from bcmdist.errors import BcmdistError, BcmdistWarning, on_command_line
from bcmdist.runtime.signals import heeded, interruptible
from bcmdist.storage.urls import without_users

TRACEBACK_VARIABLE = "BCMDIST_TRACEBACK"


class _Commands(click.Group):
    """Group of commands that prints errors as one line, also as JSON with `--json`, and sets the exit code."""

    command_class = Command

    def invoke(self, ctx):
        with on_command_line():
            return self._invoke(ctx)

    def _invoke(self, ctx):
        warnings.showwarning = _show_warning
        try:
            # A background job of a shell has SIGINT ignored, which is kept.
            with interruptible(signal.SIGTERM, *heeded(signal.SIGINT)):
                return super().invoke(ctx)
        except click.UsageError as error:
            where = error.ctx.command_path if error.ctx else "bcmdist"
            _fail("UsageError", f"{error.format_message()} (see `{where} --help`)", 2)
        except BcmdistError as error:
            _fail(type(error).__name__, str(error), 1)
        except OSError as error:
            if isinstance(error, BrokenPipeError) and failures.nobody_reads():
                sys.exit(failures.BROKEN_PIPE)
            _fail(*failures.described(error), 1)
        except (KeyboardInterrupt, click.Abort):
            _fail("Interrupted", "expected to finish, got an interrupt; run the same command again", 1)
        except click.exceptions.Exit:
            raise
        except Exception as error:
            if isinstance(error, click.ClickException):
                raise
            if os.environ.get(TRACEBACK_VARIABLE):
                traceback.print_exc()
            hint = f"not foreseen; set {TRACEBACK_VARIABLE}=1 to see where it comes from"
            _fail(type(error).__name__, f"{error} ({hint})", 1)


def _fail(name, message, code):
    message = without_users(message)
    if "--json" in sys.argv:
        click.echo(json.dumps({"error": name, "message": message}))
    click.echo(f"bcmdist: {name}: {_lines(message)}", err=True)
    sys.exit(code)


def _show_warning(message, category, filename, lineno, file=None, line=None):
    if issubclass(category, BcmdistWarning):
        note_warning(_lines(message))


def _lines(message):
    """Return a message as one line, followed by the lines of a table, each of which begins with a bar."""
    text, *rows = str(message).split("\n| ")
    return "\n".join([one_line(" ".join(text.split())), *(f"| {one_line(row)}" for row in rows)])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "BCMDIST"})
@click.version_option(__version__)
@click.option("--config", metavar="FILE.toml", help="Options in one table per command [default: $BCMDIST_CONFIG].")
@click.pass_context
def cli(ctx, config) -> None:
    """Gaussian processes for data that do not fit one machine: a Bayesian committee on Dask."""
    read_defaults(ctx, config)


COMMANDS = (
    demo,
    import_,
    fit,
    predict,
    forecast,
    score,
    info,
    plot,
    report,
    ingest,
    bridge,
    forget,
    merge,
    prune,
    backup,
    refit,
    revert,
    alias,
    serve,
    tokens,
    certs,
    doctor,
)
for command in (*COMMANDS, *jobs.COMMANDS):
    cli.add_command(command)
