"""The command info."""

import click

from bcmdist.app.cli.options import Command, json_option
from bcmdist.app.cli.output import readable, report
from bcmdist.errors import InvalidOption


def _load(model):
    from bcmdist.api.opened import opened  # quick start

    return _held(opened(model))


def _held(held):
    """A model that is kept from pruning until the command ends."""
    return click.get_current_context().with_resource(held)


@click.command(cls=Command)
@click.argument("model")
@click.option("--at", "commit", type=int, metavar="N", help="As of commit N [default: the newest].")
@click.option("--history", is_flag=True, help="List its commits.")
@click.option("--ledger", is_flag=True, help="List the partitions it has heard.")
@click.option("--p-eff-data", is_flag=True, help="Read the data again for their own effective degrees of freedom.")
@click.option("--calibration", is_flag=True, help="Compute how often intervals hold f, with some of the rows.")
@click.option("--picture", metavar="FILE.png", help="Draw how well partitions were predicted before they were heard.")
@json_option
def info(model, commit, history, ledger, p_eff_data, calibration, picture, as_json) -> dict:
    """Tell what MODEL is and what it has heard.

    Example: bcmdist info model --json
    """
    from bcmdist.api.gbcm import GBCM  # quick start
    from bcmdist.api.opened import refuse_mixture
    from bcmdist.app import pictures
    from bcmdist.prediction.arrivals import drift

    if commit is not None or history or ledger or p_eff_data or calibration or picture:
        refuse_mixture(model, "look into")
    if picture:
        pictures.check(picture)
    gbcm = _load(model) if commit is None else _held(GBCM.held(model, commit=commit))
    figures = gbcm.info()
    if p_eff_data:
        figures["p_eff_data"] = gbcm.effective_parameters()["data"]
    if calibration:
        figures["calibration"] = gbcm.calibration()
    if history:
        figures["history"] = gbcm.store.history()
    if ledger:
        counts = gbcm.weights
        figures["ledger"] = [{"key": e.key, "rows": e.rows, "weight": counts[e.key]} for e in gbcm.ledger]
    if picture:
        table = drift.arrivals(gbcm.ledger)
        if not len(table):
            raise InvalidOption(
                f"{model}: expected partitions that were ingested, it has heard none; leave out --picture"
            )
        pictures.drift_picture(picture, table)
        figures["picture"] = picture
    return report(figures, as_json, _in_words(figures))


def _in_words(figures):
    """Figures for a table: shared lengthscales are one, and decisions and what is known of errors are sentences."""
    shared = figures.get("shared_lengthscales", {})
    if "decisions" not in figures:  # of a mixture
        return figures
    values = {
        name: f"{readable(value[0])} (shared by {shared[name]} inputs)" if name in shared else value
        for name, value in figures["hyperparameters"].items()
    }
    said = "; ".join(map(_decision, figures["decisions"])) or None
    told = figures | {"hyperparameters": values, "decisions": said, "errors": _errors(figures["errors"])}
    return {name: value for name, value in told.items() if name != "shared_lengthscales"}


def _errors(told):
    """Shape and scale of errors, in a line."""
    if told is None:
        return None
    pairs = zip(told["shape"]["weights"], told["shape"]["scales"], strict=True)
    shape = " + ".join(f"{weight:.0%} N(0, {scale:.2f}^2)" for weight, scale in pairs)
    gain = "" if told["gain"] is None else f" ({told['gain']:.2g} +- {told['gain_error']:.2g} nats a row)"
    return f"{told['scale']} scale{gain}; in units of the predicted deviation {shape}, of {told['residuals']} rows"


def _decision(decision):
    """Who took what, and by how much over the others."""
    unit = " nats" if decision["judge"] == "evidence" else " nats a row"
    over = ", ".join(f"{name} by {_margin(found)}{unit}" for name, found in decision["over"].items())
    return f"{decision['of']}: {decision['taken']} over {over}, by {decision['judge']}"


def _margin(found):
    if found["nats"] is None:
        return "all"
    error = "" if found["error"] is None else f" +- {readable(found['error'])}"
    return readable(found["nats"]) + error
