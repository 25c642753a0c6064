"""The command score."""

import click

from bcmdist.api.requests import ScoreRequest, request_of
from bcmdist.app.cli.fields import options_of
from bcmdist.app.cli.options import Command, json_option, runtime_options
from bcmdist.app.cli.output import report


@click.command(cls=Command)
@options_of(ScoreRequest, arguments=("model", "data"))
@click.option("--picture", metavar="FILE.png", help="Plot the calibration of the predictions.")
@runtime_options
@json_option
def score(picture, make_runtime, as_json, **options) -> dict:
    """Score the predictions of MODEL against the targets of DATA, in original units.

    Example: bcmdist score model test.zarr
    """
    from bcmdist.api.carry_out import score_figures, scoring  # quick start
    from bcmdist.api.pictures import paper
    from bcmdist.api.pictures.scores import score_picture
    from bcmdist.prediction.scoring.verdicts import verdict

    with scoring(request_of(ScoreRequest, options)) as (method, work):
        if picture:
            paper.check(picture)
        with make_runtime() as runtime:
            scores = work(runtime)
    figures = score_figures(method, scores)
    if picture:
        score_picture(picture, scores)
        figures["picture"] = picture
    return report(figures, as_json, figures | {"trust": verdict(scores)})
