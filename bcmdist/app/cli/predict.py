"""The commands `predict`, `score` and `forecast`."""

import time

import click

from bcmdist.api.requests import ForecastRequest, PredictRequest, ScoreRequest, request_of
from bcmdist.app.cli.fields import options_of
from bcmdist.app.cli.options import SEED_TYPE, Command, WholeWithin, json_option, runtime_options
from bcmdist.app.cli.output import Lines, readable, report, scored_outputs


@click.command(cls=Command)
@options_of(
    ForecastRequest,
    arguments=("model", "data"),
    steps={"type": WholeWithin(1, 1_000_000)},
    seed={"type": SEED_TYPE},
)
@json_option
def forecast(as_json, **options) -> dict:
    """Forecast series with MODEL, which was fitted to data imported with --lags.

    DATA, a table with the series, row after row, or a data set that was imported with --lags, tells their last values
    [default: the data set that MODEL was fitted to].

    Example: bcmdist forecast model series.csv --steps 24 --out forecast.csv
    """
    from bcmdist.api.carry_out import carry_out  # quick start
    from bcmdist.runtime.interface import SerialRuntime

    figures = carry_out(request_of(ForecastRequest, options), SerialRuntime)
    if "forecast" not in figures:
        return report(figures, as_json)
    columns = figures["forecast"]
    lines = [" ".join(f"{name:>20}" for name in columns)]
    lines += [" ".join(f"{readable(value):>20}" for value in row) for row in zip(*columns.values(), strict=True)]
    return report(figures, as_json, figures | {"forecast": Lines(lines)})


@click.command(cls=Command)
@options_of(ScoreRequest, arguments=("model", "data"), folds={"also": "--blocks"}, seed={"type": SEED_TYPE})
@click.option("--picture", metavar="FILE.png", help="Plot the calibration, or with --folds errors over distance.")
@runtime_options
@json_option
def score(picture, make_runtime, as_json, **options) -> dict:
    """Score the predictions of MODEL against the targets of DATA, in original units.

    Example: bcmdist score model test.zarr
    """
    from bcmdist.api.pictures import paper  # quick start

    request = request_of(ScoreRequest, options)
    if picture:
        paper.check(picture)
    return (_scores if request.folds is None else _cross_validation)(request, picture, make_runtime, as_json)


def _scores(request, picture, make_runtime, as_json):
    from bcmdist.api.carry_out import score_figures, scoring  # quick start
    from bcmdist.api.comparison.remarks import trust
    from bcmdist.api.pictures.scores import score_picture

    with scoring(request) as (method, work, baselines), make_runtime() as runtime:
        scores = work(runtime)
        figures = score_figures(method, scores)
        trusted = trust(scores, *baselines())
    if picture:
        score_picture(picture, scores)
        figures["picture"] = picture
    figures["trust"] = trusted
    return report(figures, as_json, scored_outputs(figures))


def _cross_validation(request, picture, make_runtime, as_json):
    from bcmdist.api.carry_out import validating  # quick start

    with validating(request) as validate, make_runtime() as runtime:
        result = validate(runtime)
    figures = result.to_json()
    if picture:
        result.plot(picture)
        figures["picture"] = picture
    shown: dict = {"method": result.method, "left out": f"by {result.by}; distances {result.unit}", "kept": result.kept}
    shown |= {"folds": Lines(result.lines()), "picture": picture}
    return report(figures, as_json, shown)


@click.command(cls=Command)
@options_of(PredictRequest, arguments=("model", "data"), seed={"type": SEED_TYPE})
@runtime_options
@json_option
def predict(make_runtime, as_json, **options) -> dict:
    """Predict at the rows of DATA with MODEL: a Zarr data set, or a file as `import` reads it.

    Columns are found by their names in training. Rows keep their numbers (from 0, without the
    header), names and coordinates. With --over, averages over groups of rows.

    Example: bcmdist predict model new.csv --out predictions.csv
    """
    started = time.perf_counter()
    from bcmdist.api.carry_out import carry_out  # quick start

    return report(carry_out(request_of(PredictRequest, options), make_runtime, started=started), as_json)
