"""Options shared by commands: where to run, TLS files, and output; and the progress bar.

Progress of sums goes to stderr: a bar per stage on a terminal, otherwise one line per stage.
"""

import functools
import logging
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from bcmdist.runtime.portion import untold
from bcmdist.runtime.progress import LEARNING, Evaluated, as_line
from bcmdist.storage.bounds import SEED, Bounds

BAR, LINE = 30, 79  # characters
REFRESH_SECONDS = 0.1
MANY = ("learn", "judge", "gaps", "train", "blocks", "neighbourhoods")


class ProgressBar:
    """Shows the progress of sums on stderr; a `Progress` of a runtime.

    The many sums of learning (stages in `MANY`) are counted together: on a terminal as they are made, with what
    `evaluated` has seen last, and in one line at the end.
    """

    def __init__(self):
        self.terminal = sys.stderr.isatty()
        self.count = 0
        """sums of stages in `MANY` since the last other one"""
        self.begun = 0.0
        """when the first of them began"""
        self.learning: Evaluated | None = None
        """latest evaluation of a search among them"""
        self.drawn = 0.0
        self.started: dict[str, float] = {}

    def __call__(self, label, done, total):
        """Show that `done` of `total` partitions are summed in the stage `label`."""
        now = time.monotonic()
        if done == 0 or label not in self.started:
            self.started[label] = now
        if label in MANY:
            self._count(done == total, now)
            return
        if self.count:
            self._end(now)
        finished = done == total
        if self.terminal and (finished or now - self.drawn > REFRESH_SECONDS):
            self.drawn = now
            filled, seconds = "#" * (BAR * done // max(total, 1)), now - self.started[label]
            text = f"{label:12} [{filled:.<{BAR}}] {done}/{total}  {seconds:.1f} s"
            print(f"\r{text:{LINE}}", end="", file=sys.stderr, flush=True)
        if finished:
            self._line(f"{label:12} {total} partitions in {now - self.started[label]:.1f} s")

    def evaluated(self, event: Evaluated) -> None:
        """Note an evaluation of a search."""
        self.learning = event

    def _count(self, finished, now):
        """Count a sum of learning, and show the number on a terminal."""
        if not self.begun:
            self.begun = now
        self.count += finished
        if self.terminal and now - self.drawn > REFRESH_SECONDS:
            self.drawn = now
            shown = as_line(self.learning) if self.learning else f"evaluation {self.count}"
            text = f"{'learn':12} {shown}, {now - self.begun:.0f} s"
            print(f"\r{text:{LINE}.{LINE}}", end="", file=sys.stderr, flush=True)

    def _end(self, now):
        """Say how many sums learning took, and how long."""
        self._line(f"{'learn':12} {self.count} evaluations in {now - self.begun:.1f} s")
        self.count, self.begun, self.learning = 0, 0.0, None

    def _line(self, text):
        text = f"\r{text:{LINE}}" if self.terminal else text  # over the rest of the bar
        print(text, file=sys.stderr, flush=True)


class Command(click.Command):
    """A command that refuses a repeated option that takes one value; click would silently use the last value."""

    def parse_args(self, ctx, args) -> list[str]:
        *_, order = self.make_parser(ctx).parse_args(list(args))
        for option in order:
            if isinstance(option, click.Option) and _has_one_value(option) and order.count(option) > 1:
                named = "/".join((*option.opts, *option.secondary_opts))
                raise click.UsageError(f"expected {named} once, got it {order.count(option)} times; give one", ctx)
        return super().parse_args(ctx, args)


def _has_one_value(option):
    """Whether repeating an option could contradict its first use."""
    return not option.multiple and (not option.is_flag or bool(option.secondary_opts))


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")


class WholeWithin(click.types.IntParamType):
    """Parameter type: a whole number within bounds, which the error states."""

    def __init__(self, least: int, most: int):
        self.bounds = Bounds(least, most)

    def convert(self, value, param, ctx) -> int:
        """Return the number; raise `InvalidOption` outside the bounds."""
        return _within(self.bounds, super().convert(value, param, ctx), param)


class NumberWithin(click.types.FloatParamType):
    """Parameter type: a number within bounds, which the error states."""

    def __init__(self, least: float, most: float, *, above: bool = False):
        self.bounds = Bounds(float(least), float(most), above)

    def convert(self, value, param, ctx) -> float:
        """Return the number; raise `InvalidOption` outside the bounds."""
        return _within(self.bounds, super().convert(value, param, ctx), param)


class CommitType(click.ParamType):
    """Parameter type: a commit, by its number or by an alias."""

    name = "commit"

    def convert(self, value, param, ctx) -> int | str:
        """Return the number or the alias; raise `InvalidOption` for a number outside the bounds."""
        return COMMIT_NUMBER.convert(value, param, ctx) if value.lstrip("-").isdigit() else value


def _within(bounds, value, param):
    bounds.refuse(param.opts[0], value)
    return value


COMMIT_NUMBER, COMMIT = WholeWithin(1, 10**8 - 1), CommitType()
SEED_TYPE = WholeWithin(int(SEED.least), int(SEED.most))


class Tls(NamedTuple):
    """Paths of the CA, certificate and key of a node in a TLS cluster; all or none."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None


NO_TLS = Tls()


def tls_options(command) -> Callable:
    """Decorator that adds --tls-ca, --tls-cert and --tls-key to a command."""

    @click.option("--tls-ca", metavar="FILE.pem", help="CA of a scheduler at tls://HOST:PORT [default: Dask's].")
    @click.option("--tls-cert", metavar="FILE.pem", help="Client certificate [default: Dask's].")
    @click.option("--tls-key", metavar="FILE.key", help="Key of the certificate [default: Dask's].")
    @functools.wraps(command)
    def wrapped(*args, **options):
        return command(*args, **options)

    return wrapped


def runtime_options(command) -> Callable:
    """Decorator that adds --scheduler, --share, --workers, --serial, --quiet and the TLS options to a command.

    The command gets the argument `make_runtime`, a function without arguments, in their place.
    """

    @click.option("--scheduler", metavar="ADDRESS", help="Use the Dask cluster at this address.")
    @click.option("--share", type=float, metavar="F", help="Largest share of its worker threads, above 0 and up to 1.")
    @click.option(
        "--workers", type=int, help="Largest number of its workers; or workers of a local cluster [default: cores]."
    )
    @click.option("--serial", is_flag=True, help="Run in this process, without a cluster.")
    @click.option("--quiet", is_flag=True, help="Do not show progress; warnings and errors are still printed.")
    @tls_options
    @functools.wraps(command)
    def wrapped(*args, scheduler, share, workers, serial, quiet, tls_ca, tls_cert, tls_key, **options):
        where = chosen_place(scheduler, workers, serial, share)
        tls = chosen_tls(where.get("scheduler"), tls_ca, tls_cert, tls_key)
        if not (where.get("scheduler") or where.get("serial")):
            from bcmdist.runtime.dask import forkserver  # quick start

            forkserver.start()  # its imports and those of the command take place at the same time
        return command(*args, make_runtime=functools.partial(_runtime, **where, tls=tls, quiet=quiet), **options)

    return wrapped


def chosen_place(scheduler, workers, serial, share=None) -> dict:
    """Return the options that choose where to run, by name.

    If any of --scheduler, --workers and --serial is on the command line, the others are ignored in the environment and
    in configuration files.

    Raises
    ------
    click.UsageError
        --serial together with another place, or --share on the command line without a scheduler.
    """
    places = {"scheduler": scheduler, "workers": workers, "serial": serial or None}
    typed = set(filter(_is_typed, places))
    chosen = {n: v for n, v in places.items() if v is not None and (n in typed or not typed)}
    if "serial" in chosen and len(chosen) > 1:
        raise click.UsageError("expected one of --scheduler, --workers and --serial, got several")
    if share is not None and "scheduler" not in chosen and _is_typed("share"):
        raise click.UsageError("expected --scheduler ADDRESS beside --share, got none")
    return chosen | ({"share": share} if share is not None and "scheduler" in chosen else {})


def chosen_tls(scheduler, tls_ca, tls_cert, tls_key) -> Tls:
    """Return the TLS files for a scheduler.

    Files named in the environment or a configuration file are ignored if there is no scheduler.

    Raises
    ------
    click.UsageError
        Only some of the three files are given, or all without a scheduler.
    """
    tls = Tls(tls_ca, tls_cert, tls_key)
    if scheduler is None and not any(map(_is_typed, ("tls_ca", "tls_cert", "tls_key"))):
        return NO_TLS
    if any(tls) and not all(tls):
        raise click.UsageError("expected all of --tls-ca, --tls-cert and --tls-key, or none, got some")
    if any(tls) and scheduler is None:
        raise click.UsageError("expected --scheduler tls://HOST:PORT beside --tls-ca, got none")
    return tls


def _is_typed(name):
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def security_shown(tls: Tls) -> Any:
    """Return the files as a Dask `Security`; None without files, so that Dask's configuration applies."""
    if tls == NO_TLS:
        return None
    from bcmdist.runtime.dask.security import security_of  # quick start

    return security_of(*map(str, tls))


def _runtime(scheduler=None, workers=None, serial=None, share=None, tls=NO_TLS, quiet=False):
    from bcmdist.app.cli.options import ProgressBar  # quick start
    from bcmdist.runtime.interface import silent  # quick start

    progress = silent if quiet else ProgressBar()
    LEARNING.setLevel(logging.DEBUG if isinstance(progress, ProgressBar) and progress.terminal else logging.WARNING)
    LEARNING.addHandler(EVALUATIONS)  # once, however often it is added
    EVALUATIONS.evaluated = progress.evaluated if isinstance(progress, ProgressBar) else None
    logging.getLogger(LOOK).setLevel(logging.WARNING if quiet else logging.INFO)
    logging.getLogger(LOOK).addHandler(ECHO)  # once, however often it is added
    if serial:
        from bcmdist.runtime.interface import SerialRuntime  # quick start

        return SerialRuntime(progress=progress)
    from bcmdist.runtime.dask.cluster import DaskRuntime  # quick start

    security, waits = security_shown(tls), untold if quiet else _say_waits
    return DaskRuntime(scheduler, workers=workers, share=share, security=security, progress=progress, waits=waits)


class _Echo(logging.Handler):
    """Writes log records to stderr, as it is at the time."""

    def emit(self, record):
        click.echo(f"bcmdist: {record.getMessage()}", err=True)


class _Evaluations(logging.Handler):
    """Passes evaluations of searches on to the progress bar of the command."""

    evaluated: Callable[[Evaluated], None] | None = None

    def emit(self, record):
        if self.evaluated:
            self.evaluated(record.msg)


ECHO, EVALUATIONS = _Echo(), _Evaluations()
LOOK = "bcmdist.learning.first_look"  # says what a fit finds in the data before it learns


def _say_waits(words):
    click.echo(words, err=True)
