"""The command plot."""

import click

from bcmdist.app.cli.options import Command, json_option, runtime_options
from bcmdist.app.cli.output import report

WHAT = ("learning", "calibration", "relevance", "residuals", "drift", "map")


@click.command(cls=Command)
@click.argument("model")
@click.option("--out", metavar="FILE.png", help="Picture to write: .png, .svg or .pdf [default: WHAT.png, here].")
@click.option(
    "--what",
    type=click.Choice(WHAT),
    help="What to draw [default: calibration with --data, else relevance]; learning, calibration and residuals need "
    "--data.",
)
@click.option("--data", metavar="TEST.zarr", help="Data set with targets that the model has not heard.")
@click.option("--method", metavar="[committee|local|NAME]", help="How to predict [default: as recorded at fit].")
@click.option("--x", help="Name of the input array [default: as in training].")
@click.option("--y", help="Name of the target array [default: as in training].")
@runtime_options
@json_option
def plot(model, out, what, data, method, x, y, make_runtime, as_json) -> dict:
    """Draw what MODEL has learned, or how far its predictions can be trusted.

    Example: bcmdist plot model --what residuals --data test.zarr --out residuals.png
    """
    from bcmdist.api.gbcm import GBCM  # quick start
    from bcmdist.api.opened import refuse_mixture
    from bcmdist.api.pictures.pictures import refused

    refuse_mixture(model, "draw")
    what = refused(what, data, out or "picture.png")
    out = out or f"{what}.png"
    with GBCM.held(model) as gbcm, make_runtime() as runtime:
        gbcm.plot(out, what=what, data=data, method=method, x=x, y=y, runtime=runtime)
    return report({"what": what, "picture": out}, as_json)
