"""The command `report`: write an HTML report on a model's predictions."""

import click

from bcmdist.api.requests import ScoreRequest, request_of
from bcmdist.app.cli import output
from bcmdist.app.cli.fields import options_of
from bcmdist.app.cli.options import Command, json_option, runtime_options


@click.command(cls=Command)
@options_of(ScoreRequest, arguments=("model", "data"), leave_out=("folds", "by", "coordinates", "seed"))
@click.option("--out", metavar="FILE.html", required=True, help="Self-contained page to write; it must not exist.")
@click.option(
    "--train",
    metavar="TRAIN.zarr",
    help="Training data of the simple baselines [default: the data of MODEL].",
)
@runtime_options
@json_option
def report(out, train, make_runtime, as_json, **options) -> dict:
    """Write a report on MODEL's predictions of DATA: scores, baselines, calibration, relevance, worst rows.

    Example: bcmdist report model test.zarr --out report.html
    """
    asked = request_of(ScoreRequest, options)
    from bcmdist.api.imported import scored  # quick start
    from bcmdist.api.mixture import opened
    from bcmdist.api.report.report import refuse
    from bcmdist.api.report.report import report as written
    from bcmdist.data.outputs import refuse_existing

    refuse_existing(out)
    with opened(asked.model, commit=asked.at) as of:
        names = {"x": asked.x, "y": asked.y, "unseen": asked.unseen}
        with scored(of.predictive.snapshot.model, asked.model, asked.data, **names) as (data, names):
            how = {"train": train, "method": asked.method, "inputs": asked.inputs, **names}
            refuse(of, data, out, **how)
            with make_runtime() as runtime:
                figures = written(of, data, out, runtime, **how)
    shown = {name: figures[name] for name in ("report", "rows", "method", "learned_from")}
    words = {f"remark {number}": text for number, text in enumerate(figures["remarks"], start=1)}
    return output.report(figures, as_json, shown | words)
