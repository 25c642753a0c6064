"""The command `demo`: run the main workflow on generated data."""

import time

import click

from bcmdist.app.cli.options import SEED_TYPE, Command, NumberWithin, WholeWithin, json_option, runtime_options
from bcmdist.app.cli.output import report


@click.command(cls=Command)
@click.option("--rows", type=WholeWithin(2, 10_000_000), default=60_000, show_default=True, help="Training rows.")
@click.option(
    "--sigma",
    type=NumberWithin(0, 1e6),
    default=0.0,
    show_default=True,
    help="Noise added to the function before its sign is taken.",
)
@click.option("--out", metavar="DIR", help="New directory for data, model and pictures [default: bcmdist-demo].")
@click.option("--seed", type=SEED_TYPE, help="Seed of centres and rows [default: one of balanced classes].")
@runtime_options
@json_option
def demo(rows, sigma, out, seed, make_runtime, as_json) -> dict:
    """Run the main job on generated data: a Zarr store, a Dask cluster, a committee.

    Example: bcmdist demo --rows 20000 --sigma 0.5 --out demo
    """
    started = time.perf_counter()
    from bcmdist.api.pictures import paper  # quick start
    from bcmdist.app import demo as demos
    from bcmdist.errors import MissingExtra

    sizes = demos.DemoSizes(rows)
    seed = demos.DEFAULT_SEED if seed is None else seed
    directory = demos.new_directory(out)
    with make_runtime() as runtime:
        cluster_seconds = time.perf_counter() - started
        figures = demos.run(directory, runtime, sizes=sizes, sigma=sigma, seed=seed)
        figures["workers"] = runtime.threads
    figures["seconds_by_stage"] = {"cluster": cluster_seconds} | figures["seconds_by_stage"]
    try:
        figures["pictures"] = demos.draw(directory, figures)
    except MissingExtra:
        figures["pictures"] = []
        click.echo(paper.HOW_TO_GET, err=True)
    figures["seconds"] = time.perf_counter() - started
    figures["rows_per_second"] = figures["rows"] / figures["seconds"]
    curve = figures["curve"]
    shown = {n: v for n, v in figures.items() if n != "curve"}
    shown |= {f"after {p['rows']:,} rows": f"accuracy {p['accuracy']:.4f}, log loss {p['log_loss']:.4f}" for p in curve}
    return report(figures, as_json, shown)
