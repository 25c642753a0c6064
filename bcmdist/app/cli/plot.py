"""The command `plot`: plot what a model has learned, or the calibration of its predictions."""

import click

from bcmdist.app.cli.options import Command, NumberWithin, json_option, runtime_options
from bcmdist.app.cli.output import report

WHAT = ("learning", "calibration", "relevance", "residuals", "drift", "effects", "variogram", "map")


@click.command(cls=Command)
@click.argument("model")
@click.option("--out", metavar="FILE.png", help="Picture to write: .png, .svg or .pdf [default: WHAT.png, here].")
@click.option(
    "--what",
    type=click.Choice(WHAT),
    help="What to plot [default: calibration with --data, else relevance]; learning, calibration, residuals and "
    "variogram need --data.",
)
@click.option(
    "--above",
    type=NumberWithin(-1e300, 1e300),
    multiple=True,
    metavar="T",
    help="With --what map: also the probability that the function is above T; repeat it for more.",
)
@click.option("--data", metavar="TEST.zarr", help="Data set or table with targets that the model has not absorbed.")
@click.option("--method", metavar="[committee|local|NAME]", help="How to predict [default: as recorded at fit].")
@click.option(
    "--inputs",
    type=click.Choice(["exact", "taylor", "montecarlo"]),
    help="How to average over uncertain inputs [default: exact where available, else montecarlo].",
)
@click.option("--x", help="Name of the input array [default: as in training].")
@click.option("--y", help="Name of the target array, or of the column of a file [default: as in training].")
@click.option(
    "--unseen",
    type=click.Choice(["error", "other"]),
    help="For files: refuse categories that are not in the training data, or treat them as random ones [default: as in "
    "training].",
)
@runtime_options
@json_option
def plot(model, out, what, above, data, method, inputs, x, y, unseen, make_runtime, as_json) -> dict:
    """Plot what MODEL has learned, or the calibration of its predictions.

    Example: bcmdist plot model --what residuals --data test.zarr --out residuals.png
    Example: bcmdist plot model --what map --above 0.5 --data sites.csv --out map.png
    """
    from bcmdist.api.imported import scored  # quick start
    from bcmdist.api.mixture import opened
    from bcmdist.api.pictures.pictures import plot as drawn
    from bcmdist.api.pictures.pictures import refused
    from bcmdist.prediction.datasets import open_scored_rows

    with opened(model) as of:
        what = refused(what, data, out or "picture.png", of=of, above=above)
        out = out or f"{what}.png"
        with scored(of.predictive.snapshot.model, model, data, x=x, y=y, unseen=unseen) as (rows, names):
            if rows is not None:
                open_scored_rows(of.predictive, rows, **names, method=method, inputs=inputs)
            with make_runtime() as runtime:
                drawn(of, out, runtime, what=what, data=rows, method=method, inputs=inputs, above=above, **names)
    return report({"what": what, "picture": out}, as_json)
