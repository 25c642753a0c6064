"""The command forecast."""

import click

from bcmdist.app.cli.options import Command, json_option
from bcmdist.app.cli.output import report

WAYS = ("exact", "taylor", "montecarlo", "naive")


@click.command(cls=Command)
@click.argument("model")
@click.argument("data")
@click.option("--steps", type=int, required=True, metavar="K", help="Steps ahead.")
@click.option("--out", metavar="FILE.csv", required=True, help="Table to write: .csv or .parquet.")
@click.option("--id", metavar="NAME", help="Column that names the series, where there are several.")
@click.option("--method", metavar="[committee|local|NAME]", help="How to predict a step [default: as recorded at fit].")
@click.option(
    "--inputs",
    type=click.Choice(WAYS),
    help="How to go on from values that are themselves predicted [default: exact where the kernel can, else "
    "montecarlo]; naive takes them for measured.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the paths of montecarlo.")
@json_option
def forecast(model, data, steps, out, id, method, inputs, seed, as_json) -> dict:
    """Forecast the series of DATA with MODEL, which was fitted to one that was imported with --lags.

    DATA is a table with the series, row after row, or a data set that was imported with --lags.

    Example: bcmdist forecast model series.csv --steps 24 --out forecast.csv
    """
    from bcmdist.api.forecasts import forecast_table  # quick start
    from bcmdist.api.gbcm import GBCM
    from bcmdist.api.opened import refuse_mixture

    refuse_mixture(model, "forecast")
    with GBCM.held(model) as gbcm:
        how = {"steps": steps, "id": id, "method": method, "way": inputs, "seed": seed}
        return report(forecast_table(gbcm.snapshot, data, out, **how), as_json)
