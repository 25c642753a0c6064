"""The command predict."""

import time

import click

from bcmdist.api.requests import PredictRequest, request_of
from bcmdist.app.cli.fields import options_of
from bcmdist.app.cli.options import Command, json_option, runtime_options
from bcmdist.app.cli.output import report


@click.command(cls=Command)
@options_of(PredictRequest, arguments=("model", "data"))
@runtime_options
@json_option
def predict(make_runtime, as_json, **options) -> dict:
    """Predict at the rows of DATA with MODEL: a Zarr data set, or a file as `import` reads it.

    Columns are found by their names in training. Rows keep their numbers, names and coordinates.

    Example: bcmdist predict model new.csv --out predictions.csv
    """
    started = time.perf_counter()
    from bcmdist.api.carry_out import carry_out  # quick start

    return report(carry_out(request_of(PredictRequest, options), make_runtime, started=started), as_json)
