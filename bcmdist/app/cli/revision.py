"""The commands that change the contents of models: `forget`, `merge`, `prune`."""

import time

import click

from bcmdist.app.cli.options import Command, json_option, runtime_options
from bcmdist.app.cli.output import report


@click.command(cls=Command)
@click.argument("model")
@click.argument("keys", nargs=-1, required=True)
@runtime_options
@json_option
def forget(model, keys, make_runtime, as_json) -> dict:
    """Forget the partitions KEYS in MODEL, exactly; `info --ledger` lists them.

    Example: bcmdist forget model '/data/train.zarr/X[0:1000]'
    """
    start = time.perf_counter()
    from bcmdist.api.gbcm import GBCM  # quick start
    from bcmdist.api.mixture import refuse_mixture

    refuse_mixture(model, "forget")
    with make_runtime() as runtime, GBCM.held(model) as before:
        after = before.forget(keys, runtime=runtime)
    figures = {"forgotten": len(set(keys)), "rows": after.committee.total.rows, "partitions": len(after.ledger)}
    error = after.facts.get("withdrawn_error")
    if error is not None:
        figures["error_before_last_pass"] = error
    return report(figures | {"seconds": time.perf_counter() - start, "commit": after.commit}, as_json)


@click.command(cls=Command)
@click.argument("model_a")
@click.argument("model_b")
@click.option("--model", required=True, metavar="DIR", help="New model directory.")
@runtime_options
@json_option
def merge(model_a, model_b, model, make_runtime, as_json) -> dict:
    """Merge two committees of one prepared model that have absorbed different data, in either order.

    Class probabilities and the distribution of errors are calibrated by the rows of both, as far as these can be read.

    Example: bcmdist merge north south --model both
    """
    from bcmdist.api.gbcm import GBCM  # quick start
    from bcmdist.api.mixture import refuse_mixture

    for one in (model_a, model_b):
        refuse_mixture(one, "merge")
    with make_runtime() as runtime, GBCM.held(model_a) as a, GBCM.held(model_b) as b:
        return report(a.merge(b, model, runtime=runtime).info(), as_json)


@click.command(cls=Command)
@click.argument("model")
@click.option(
    "--keep", type=click.IntRange(1, 10**8 - 1), required=True, metavar="N", help="Number of newest commits to keep."
)
@json_option
def prune(model, keep, as_json) -> dict:
    """Remove old commits of MODEL and the files only they need; commits in use by a job or a prediction stay.

    Example: bcmdist prune model --keep 10
    """
    from bcmdist.api.mixture import refuse_mixture  # quick start
    from bcmdist.storage.commits import open_store

    refuse_mixture(model, "prune")
    return report(open_store(model).prune(keep), as_json)
