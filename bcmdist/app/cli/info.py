"""The command `info`: describe a model."""

import click

from bcmdist.app.cli.options import COMMIT, Command, json_option
from bcmdist.app.cli.output import in_words, report
from bcmdist.errors import InvalidOption


def _load(model, commit=None):
    from bcmdist.api.mixture import opened  # quick start

    return _pinned(opened(model, commit=commit))


def _pinned(held):
    """Protect the commit of an opened model from pruning until the command ends; return the model."""
    return click.get_current_context().with_resource(held)


@click.command(cls=Command)
@click.argument("model")
@click.option("--at", "commit", type=COMMIT, metavar="N|ALIAS", help="State at this commit [default: the newest].")
@click.option("--history", is_flag=True, help="List its commits.")
@click.option("--ledger", is_flag=True, help="List the partitions it has absorbed.")
@click.option(
    "--p-eff-data", is_flag=True, help="Read the data again to compute their own effective degrees of freedom."
)
@click.option("--calibration", is_flag=True, help="Compute the coverage of intervals on a sample of the rows.")
@click.option(
    "--picture", metavar="FILE.png", help="Plot how well partitions were predicted before they were absorbed."
)
@json_option
def info(model, commit, history, ledger, p_eff_data, calibration, picture, as_json) -> dict:
    """Describe MODEL and the data it has absorbed.

    Example: bcmdist info model --json
    """
    from bcmdist.api.mixture import refuse_mixture  # quick start
    from bcmdist.api.pictures import curves, paper
    from bcmdist.committee import fading
    from bcmdist.prediction.errors import drift

    if p_eff_data or calibration:
        refuse_mixture(model, "compute coverage or degrees of freedom of")
    if picture:
        paper.check(picture)
    gbcm = _load(model, commit)
    snapshot = gbcm.predictive.snapshot
    figures = gbcm.info()
    if p_eff_data:
        figures["p_eff_data"] = gbcm.effective_parameters()["data"]
    if calibration:
        figures["calibration"] = gbcm.calibration()
    if history:
        figures["history"] = gbcm.history()
    if ledger:
        counts = fading.weights(snapshot.facts.fading, snapshot.ledger)
        figures["ledger"] = [{"key": e.key, "rows": e.rows, "weight": counts[e.key]} for e in snapshot.ledger]
    if picture:
        table = drift.arrivals(snapshot.ledger.latest_arrivals(drift.MOST_ARRIVALS))
        if not len(table):
            raise InvalidOption(
                f"{model}: expected partitions that were ingested, it has absorbed none; leave out --picture"
            )
        curves.drift_picture(picture, table)
        figures["picture"] = picture
    words = in_words(figures)
    if calibration:
        from bcmdist.prediction.scoring.verdicts import of_coverages  # quick start

        found = figures["calibration"]
        words["calibration"] = {"verdict": of_coverages(found["coverage50"], found["coverage95"])} | found
    return report(figures, as_json, words)
