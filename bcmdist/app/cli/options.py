"""Options that commands share: where to work, and how to print."""

import functools
from collections.abc import Callable

import click


class Command(click.Command):
    """A command that refuses a second value for an option that has one; click would keep the last."""

    def parse_args(self, ctx, args) -> list[str]:
        *_, given = self.make_parser(ctx).parse_args(list(args))
        for option in given:
            if isinstance(option, click.Option) and _has_one_value(option) and given.count(option) > 1:
                named = "/".join((*option.opts, *option.secondary_opts))
                raise click.UsageError(f"expected {named} once, got it {given.count(option)} times; give one", ctx)
        return super().parse_args(ctx, args)


def _has_one_value(option):
    """Whether saying an option again could mean something else."""
    return not option.multiple and (not option.is_flag or bool(option.secondary_opts))


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")


def runtime_options(command) -> Callable:
    """--scheduler, --workers, --serial; the command gets `make_runtime`."""

    @click.option("--scheduler", metavar="ADDRESS", help="Work on the Dask cluster at this address.")
    @click.option("--workers", type=int, help="Worker processes of a cluster on this machine [default: cores].")
    @click.option("--serial", is_flag=True, help="Work in this process, without a cluster.")
    @functools.wraps(command)
    def wrapped(*args, scheduler, workers, serial, **options):
        where = chosen_place(scheduler, workers, serial)
        return command(*args, make_runtime=functools.partial(_runtime, **where), **options)

    return wrapped


def chosen_place(scheduler, workers, serial) -> dict:
    """Where to work, by option: what the command line says wins over a configuration file.

    Raises
    ------
    click.UsageError
        Several places are given.
    """
    context = click.get_current_context()
    given = {"scheduler": scheduler, "workers": workers, "serial": serial or None}
    typed = {n for n in given if context.get_parameter_source(n) is click.core.ParameterSource.COMMANDLINE}
    chosen = {n: v for n, v in given.items() if v is not None and (n in typed or not typed)}
    if len(chosen) > 1:
        raise click.UsageError("expected one of --scheduler, --workers and --serial, got several")
    return chosen


def _runtime(scheduler=None, workers=None, serial=None):
    from bcmdist.app.cli.progress import ProgressBar  # quick start

    if serial:
        from bcmdist.runtime.serial import SerialRuntime  # quick start

        return SerialRuntime(progress=ProgressBar())
    from bcmdist.runtime.dask.cluster import DaskRuntime  # quick start

    return DaskRuntime(scheduler, workers=workers, progress=ProgressBar())
