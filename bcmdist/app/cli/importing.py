"""The command `import`: convert a file into a Zarr data set."""

import click

from bcmdist.api.requests import request_of
from bcmdist.app.cli.fields import options_of
from bcmdist.app.cli.options import SEED_TYPE, Command, NumberWithin, WholeWithin, json_option
from bcmdist.app.cli.output import report
from bcmdist.data.tables.options import TableOptions


@click.command("import", cls=Command)
@click.argument("file")
@click.argument("data")
@click.option("--x", "x", metavar="NAME,NAME,...", help="Input columns or variables [default: all columns].")
@click.option("--y", "y", default="y", show_default=True, help="Array or column of the targets.")
@click.option(
    "--rows-per-chunk", type=WholeWithin(1, 10**9), default=4096, show_default=True, help="Rows per Zarr chunk."
)
@click.option("--part", type=click.Choice(["train", "test", "all"]), default="all", show_default=True)
@click.option(
    "--holdout", type=NumberWithin(0, 1, above=True), metavar="FRACTION", help="Share of rows in the test part."
)
@click.option("--seed", type=SEED_TYPE, default=0, show_default=True, help="Seed of the holdout permutation.")
@click.option("--mask", metavar="NAME", help="Array that is 1 at test rows.")
@click.option("--mask-row", type=WholeWithin(0, 10**12), default=0, show_default=True, help="Row of the mask to use.")
@click.option(
    "--lags",
    type=WholeWithin(1, 10_000),
    metavar="L",
    help="For time series in row order: the L previous values of --y become inputs of a row, for `forecast`; several "
    "series are named by --id. --x names further inputs, which must be known in advance.",
)
@click.option(
    "--x-lags",
    type=WholeWithin(0, 10_000),
    default=0,
    metavar="K",
    help="With --lags: K earlier values of each column of --x become inputs, too.",
)
@click.option("--no-target", is_flag=True, help="Rows to predict: no target column is needed.")
@options_of(TableOptions)
@json_option
def import_(
    file, data, x, y, rows_per_chunk, part, holdout, seed, mask, mask_row, lags, x_lags, no_target, as_json, **columns
) -> dict:
    """Write FILE (.npz, .npy, .csv, .parquet or a directory of these, .nc, .zarr) as the Zarr data set DATA.

    Of a table, every column without a role is an input: a number, a date (as UTC days) or a category of few levels (an
    input for each). How they were coded is stored with the data set and its models. Text targets are labels of classes.
    Rows are numbered from 0, without the header, in errors and in the column `row` of predictions.
    Of NetCDF, or of a Zarr group of variables, --x names the inputs, and each cell of the grid of --y is a row.

    Example: bcmdist import measurements.csv train.zarr --y yield --holdout 0.1 --part train
    """
    from bcmdist.data.tables.importing import Split, import_file  # quick start
    from bcmdist.data.tables.roles import roles_of

    split = Split(part, holdout, seed, mask, mask_row)
    roles = roles_of(request_of(TableOptions, columns), y, x=x, target=not no_target, lags=lags, x_lags=x_lags)
    return report(import_file(file, data, roles=roles, split=split, rows_per_chunk=rows_per_chunk), as_json)
