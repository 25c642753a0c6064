"""The command `ingest`: absorb new rows into a model."""

import time

import click

from bcmdist.api.requests import IngestRequest, request_of
from bcmdist.app.cli.fields import options_of
from bcmdist.app.cli.options import Command, json_option, runtime_options
from bcmdist.app.cli.output import report


def _skip(_, __, on_error):
    return on_error == "skip"


@click.command(cls=Command)
@options_of(IngestRequest, arguments=("model", "source"), leave_out=("skip",))
@click.option(
    "--on-error",
    "skip",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    callback=_skip,
    help="Partitions or data sets that fail: stop with an error after the others, or skip and record them.",
)
@runtime_options
@json_option
def ingest(make_runtime, as_json, **options) -> dict[str, int]:
    """Absorb the rows of SOURCE into MODEL, once each; partitions in its ledger are skipped.

    SOURCE is a Zarr data set, a directory of them, or redis://HOST:PORT/STREAM; the arrays are named as in training.

    Example: bcmdist ingest model new.zarr
    """
    started = time.perf_counter()
    from bcmdist.api.carry_out import carry_out  # quick start

    return report(carry_out(request_of(IngestRequest, options), make_runtime, started=started), as_json)
