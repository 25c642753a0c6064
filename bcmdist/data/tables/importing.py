"""Files into data sets: .npz, .npy, .csv and .parquet become a Zarr group with X and y, and with the names of both.

What a column is, `roles` knows. A part of the rows can be held out by a seeded permutation or by a stored mask; `row`
says where a row stood in the file.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bcmdist.data.dataset import COMPANIONS
from bcmdist.data.tables.roles import Roles, Selected, select
from bcmdist.data.writing import ROWS_PER_CHUNK, write_dataset
from bcmdist.errors import DataNotFound, InvalidData, InvalidDtype, InvalidOption

PARTS = ("train", "test", "all")


@dataclass(frozen=True)
class Split:
    """Which rows of a file to keep.

    `holdout` and `seed`: of `default_rng(seed).permutation(n)` the first `int(holdout * n)` rows
    are the test part. `mask` and `mask_row`: rows where that array is 1 are the test part. Files
    with `X_train` and `X_test` bring their own split.
    """

    part: str = "all"
    holdout: float | None = None
    seed: int = 0
    mask: str | None = None
    mask_row: int = 0

    def __post_init__(self):
        if self.part not in PARTS:
            raise InvalidOption(f"part: expected one of {', '.join(PARTS)}, got {self.part!r}; give one")
        if self.holdout is not None and self.mask is not None:
            raise InvalidOption("split: expected --holdout or --mask, got both; choose one")
        if self.holdout is not None and not 0 < self.holdout < 1:
            raise InvalidOption(f"holdout: expected a fraction between 0 and 1, got {self.holdout}; correct it")


def import_file(file, url, *, y="y", roles=None, split=None, rows_per_chunk=ROWS_PER_CHUNK) -> dict:
    """Write the rows of a file as a data set.

    Parameters
    ----------
    y : name of the target; `roles` (`Roles`) says more
    split : Split

    Returns
    -------
    dict with `rows`, `inputs`, `part`, `out`, `columns` (names of the inputs), `target`, `classes` (names, of text
    targets), `roles` and `unused` (why columns are not used, by name)

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, InvalidOption, DataExists, MissingExtra
    """
    split, roles = split or Split(), roles or Roles(y)
    if rows_per_chunk < 1:
        raise InvalidOption(f"rows-per-chunk: expected at least 1, got {rows_per_chunk}; give a positive number")
    whole = select(Path(file), roles, mask=split.mask, part=split.part)
    if len(whole.columns["X"]) == 0:
        raise InvalidData(f"{file}: expected at least one row, found none; add rows")
    columns = _part(whole, split, file)
    if len(columns["X"]) == 0:
        raise InvalidData(f"{file}: expected rows in the {split.part} part, there are none; change the split")
    attributes = {"source": Path(file).name} | ({"coordinates": roles.id} if roles.id else {})
    write_dataset(url, columns, rows_per_chunk=rows_per_chunk, attributes=attributes, schema=whole.schema)
    return {
        "rows": len(columns["X"]),
        "inputs": columns["X"].shape[1],
        "part": split.part,
        "out": str(url),
        "columns": list(whole.schema.columns),
        "target": roles.y if "y" in columns else None,
        "classes": list(whole.schema.classes),
        "roles": {name: roles.companions.get(name, name) for name in COMPANIONS if name in columns}
        | ({"id": roles.id} if roles.id else {}),
        "unused": whole.unused,
    }


def _part(whole: Selected, split, file):
    """The wanted part of the columns, and where its rows stood."""
    columns = whole.columns | {"row": np.arange(len(whole.columns["X"]))}
    if split.holdout is None and split.mask is None:
        if split.part != "all" and not whole.own_split:
            raise InvalidOption(f"{file}: part {split.part!r} needs --holdout or --mask; the file has no split")
        return columns
    if whole.own_split:
        raise InvalidOption(f"{file}: brings its own split; leave out --holdout and --mask")
    rows = _chosen_rows(whole, split, file)
    return {name: column[rows] for name, column in columns.items()}


def _chosen_rows(whole, split, file):
    n = len(whole.columns["X"])
    if split.mask is None:
        order = np.random.default_rng(split.seed).permutation(n)
        test = int(split.holdout * n)
        return {"test": order[:test], "train": order[test:], "all": order}[split.part]
    if split.mask not in whole.masks:
        raise DataNotFound(
            f"{file}: expected a mask {split.mask!r}, found {', '.join([*whole.unused, *whole.columns])}; name one of "
            "these"
        )
    mask = np.atleast_2d(whole.masks[split.mask])
    if mask.dtype.kind not in "fiub":
        raise InvalidDtype(
            f"{file}: expected numbers in the mask {split.mask!r}, got texts; write 1 at test rows, else 0"
        )
    if mask.shape[1] != n or not 0 <= split.mask_row < len(mask):
        raise InvalidOption(
            f"{file}: expected mask {split.mask} with {n} columns and a row {split.mask_row}, got shape "
            f"{mask.shape}; correct --mask-row"
        )
    chosen = mask[split.mask_row] == 1
    return {"test": chosen, "train": ~chosen, "all": np.ones(n, bool)}[split.part]
