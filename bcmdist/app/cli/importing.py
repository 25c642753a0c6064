"""The command import."""

import click

from bcmdist.app.cli.options import Command, json_option
from bcmdist.app.cli.output import report


@click.command("import", cls=Command)
@click.argument("file")
@click.argument("data")
@click.option("--y", "y", default="y", show_default=True, help="Array or column of the targets.")
@click.option("--rows-per-chunk", type=int, default=4096, show_default=True, help="Rows per Zarr chunk.")
@click.option("--part", type=click.Choice(["train", "test", "all"]), default="all", show_default=True)
@click.option("--holdout", type=float, metavar="FRACTION", help="Share of rows in the test part.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the holdout permutation.")
@click.option("--mask", metavar="NAME", help="Array that is 1 at test rows.")
@click.option("--mask-row", type=int, default=0, show_default=True, help="Row of the mask to use.")
@click.option("--no-target", is_flag=True, help="Rows to predict for: the column of the targets is not needed.")
@click.option("--weight", metavar="NAME", help="Column: how many rows each row counts for.")
@click.option("--exposure", metavar="NAME", help="Column: time or area in which the events of a row were counted.")
@click.option("--event", metavar="NAME", help="Column: 1 where a lifetime ended, 0 where it was censored.")
@click.option("--trials", metavar="NAME", help="Column: trials of which the target counts the successes.")
@click.option("--id", "id_", metavar="NAME", help="Column that names the rows, kept to the predictions.")
@click.option("--drop", metavar="NAME", multiple=True, help="Column to leave out; may be repeated.")
@json_option
def import_(
    file, data, y, rows_per_chunk, part, holdout, seed, mask, mask_row, no_target, id_, drop, as_json, **roles
) -> dict:
    """Write FILE (.npz, .npy, .csv, .parquet) as the Zarr data set DATA.

    Of a table, every column without a role is an input, and must hold numbers. Text targets are labels of classes.

    Example: bcmdist import measurements.csv train.zarr --y yield --holdout 0.1 --part train
    """
    from bcmdist.data.tables.importing import Roles, Split, import_file  # quick start

    split = Split(part, holdout, seed, mask, mask_row)
    companions = {role: name for role, name in roles.items() if name is not None}
    named = Roles(y, not no_target, companions, id_, drop)
    return report(import_file(file, data, roles=named, split=split, rows_per_chunk=rows_per_chunk), as_json)
