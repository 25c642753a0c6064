"""Import files as data sets: a table or arrays become a Zarr group with X and y, their names, and their coding.

`roles` and `look` determine how columns are used. Part of the rows can be held out by a seeded permutation or by a
stored mask; `row` holds the original row numbers. Tables are read twice, piece by piece; arrays of an .npz at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bcmdist.data.dataset import COMPANIONS
from bcmdist.data.schema import Schema, few, refuse_many_columns, warn
from bcmdist.data.tables import arrays
from bcmdist.data.tables.column import Arrays
from bcmdist.data.tables.encoded import encoded, plan
from bcmdist.data.tables.roles import Roles, warn_of_roles, warn_of_unused
from bcmdist.data.tables.series import Lagged, Lags
from bcmdist.data.tables.tables import Named, open_table
from bcmdist.data.writing import ROWS_PER_CHUNK, write_dataset, write_pieces
from bcmdist.errors import DataNotFound, InvalidData, InvalidDtype, InvalidOption
from bcmdist.storage.bounds import option_name

PARTS = ("train", "test", "all")
# Limit for a part written in the order of its permutation, which must fit in memory; larger ones keep the file's order.
PERMUTED_BYTES = 2**28


@dataclass(frozen=True)
class Split:
    """Selection of the rows to import.

    `holdout` and `seed`: the first `int(holdout * n)` rows of `default_rng(seed).permutation(n)` are the test part.
    `mask` and `mask_row`: rows at which that array is 1 are the test part. Files with `X_train` and `X_test` have their
    own split.
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

    @property
    def keeps_all(self) -> bool:
        """Whether all rows are imported, in the order of the file."""
        return self.holdout is None and self.mask is None


def import_file(file, url, *, y="y", roles=None, split=None, rows_per_chunk=ROWS_PER_CHUNK, attributes=None) -> dict:
    """Write the rows of a file as a data set.

    Parameters
    ----------
    y : name of the target, if no `roles` are given
    roles : Roles
    split : Split
    attributes : additional attributes of the group

    Returns
    -------
    dict with `rows`, `inputs`, `part`, `out`, `columns` (names of the inputs), `target`, `classes` (names, for text
    targets), `roles`, `unused` (reasons by column name), `coded` (descriptions of columns that are not plain numbers)
    and `dropped` (number of rows left out because of gaps)

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, InvalidOption, DataExists, MissingExtra
    """
    split, roles = split or Split(), roles or Roles(y)
    if rows_per_chunk < 1:
        raise InvalidOption(f"rows-per-chunk: expected at least 1, got {rows_per_chunk}; give a positive number")
    others = [*([roles.y] if roles.target else []), *roles.companions.values(), *([roles.id] if roles.id else [])]
    others += [split.mask] if split.mask else []
    found = open_table(file, roles.separator, inputs=roles.inputs, others=others)
    named = {"source": Path(file).name} | ({"coordinates": roles.id} if roles.id else {}) | (attributes or {})
    how = {"rows_per_chunk": rows_per_chunk, "attributes": named}
    if roles.lags is not None:
        figures = _write_series(found, file, url, roles, split, how)
    elif isinstance(found, Arrays):
        figures = _write_arrays(found, file, url, roles, split, how)
    else:
        figures = _write_table(found, file, url, roles, split, how)
    return {"part": split.part, "out": str(url)} | figures


# --- Arrays ---


def _write_arrays(found, file, url, roles, split, how):
    if roles.coding is None and (roles.type_options or roles.inputs or roles.missing not in ("error", "auto")):
        option = next(iter(roles.type_options.values()), "--x" if roles.inputs else "--missing")
        raise InvalidOption(f"{file}: expected a table with {option}, got arrays; leave it out, or save a .csv")
    whole = arrays.select(found, file, roles, mask=split.mask, part=split.part)
    if len(whole.columns["X"]) == 0:
        raise InvalidData(f"{file}: expected at least one row, found none; add rows")
    if whole.own_split and not split.keeps_all:
        raise InvalidOption(f"{file}: brings its own split; leave out --holdout and --mask")
    columns = whole.columns | {"row": np.arange(len(whole.columns["X"]))}
    if not whole.own_split:
        named = [*whole.unused, *whole.columns]
        rows = _chosen_rows(len(columns["X"]), whole.masks.get(split.mask), split, file, named)
        columns = {name: column[rows] for name, column in columns.items()} if rows is not None else columns
    if len(columns["X"]) == 0:
        raise InvalidData(_no_rows(file, split))
    write_dataset(url, columns, schema=whole.schema, **how)
    return _figures(len(columns["X"]), columns["X"].shape[1], whole.schema, roles, columns, whole.unused)


# --- Tables ---


def _write_table(table: Named, file, url, roles, split, how):
    made = plan(table, roles, mask=split.mask, count=not split.keeps_all)
    if made.rows == 0:
        raise InvalidData(f"{file}: expected at least one row, found none; add rows")
    rows = None
    if split.keeps_all:
        _chosen_rows(0, None, split, file, ())  # refuses a part without a split
    else:
        rows = _chosen_rows(made.rows, made.mask, split, file, table.names)
    if not roles.inputs:
        warn_of_roles(made.coding.columns, file)
    warn_of_unused(made.unused, file)
    if made.without_zones:
        warn(f"{file}: times in {few(map(repr, made.without_zones))} say no time zone; they are taken for UTC")
    refuse_many_columns(len(made.coding.inputs), file)
    classes = made.target.classes if made.target else ()
    schema = Schema(made.coding.inputs, classes, made.coding, table.coordinates)
    pieces = _Pieces(encoded(table, made), rows, 8 * len(made.coding.inputs))
    written = write_pieces(url, pieces, empty=_no_rows(file, split), schema=schema, **how)
    dropped = pieces.read - pieces.kept if rows is None else len(pieces.selected) - written
    if dropped:
        others = " or ".join(map(repr, (roles.y, *roles.companions.values())))
        of = "they have gaps" if roles.missing == "drop" else f"no value of {others}"
        warn(f"{file}: {dropped} rows left out: {of}")
    figures = _figures(written, len(schema.columns), schema, roles, pieces.names, made.unused)
    return figures | {"coded": made.coding.descriptions()} | ({"dropped": dropped} if roles.drops else {})


def _write_series(found, file, url, roles, split, how):
    """Write the values of a series, each with its lagged values as inputs (`series`)."""
    if isinstance(found, Arrays) or not split.keeps_all or split.part != "all" or not roles.target:
        raise InvalidOption(
            f"{file}: expected a table with --lags, all of it and with its target, got arrays, a part or --no-target; "
            "leave out --lags or these"
        )
    others = [*roles.type_options.values(), *map(option_name, roles.companions)]
    if others:
        raise InvalidOption(
            f"{file}: expected only --y, --x, --id and --drop with --lags, got {others[0]}; leave it out"
        )
    lags = Lags(roles.y, roles.lags, roles.inputs, roles.x_lags)
    series = Lagged(found, lags, roles.id)
    warn_of_unused(series.unused, file)
    schema = Schema(lags.columns)
    empty = f"{file}: expected more than {lags.before} values of a series, found fewer; lower --lags or add rows"
    written = write_pieces(url, series.pieces(), empty=empty, schema=schema, **how)
    names = ("y", *([roles.id] if roles.id else []))
    return _figures(written, len(lags.columns), schema, roles, names, series.unused)


class _Pieces:
    """Pieces restricted to the row numbers `wanted` (k,); in that order, if these rows fit in memory."""

    def __init__(self, pieces: Iterator[dict[str, np.ndarray]], columns, row_bytes):
        self.pieces, self.selected, self.kept, self.read = pieces, columns, 0, 0
        self.names: tuple[str, ...] = ()
        self.permuted = columns is not None and len(columns) * row_bytes <= PERMUTED_BYTES

    def __iter__(self):
        if not self.permuted:
            yield from self._some()
            return
        some = list(self._some())
        whole = {name: np.concatenate([piece[name] for piece in some]) for name in (some[0] if some else ())}
        if whole:
            place = np.full(self.read, -1)
            place[whole["row"]] = np.arange(len(whole["row"]))
            order = place[self.selected]
            yield {name: values[order[order >= 0]] for name, values in whole.items()}

    def _some(self):
        chosen = None
        if self.selected is not None:
            chosen = np.zeros(int(self.selected.max(initial=-1)) + 1, bool)
            chosen[self.selected] = True
        for piece in self.pieces:
            rows = piece["row"]
            self.names, self.kept = tuple(piece), self.kept + len(rows)
            self.read = max(self.read, int(rows.max(initial=-1)) + 1)
            if chosen is not None:
                some = (rows < len(chosen)) & chosen[np.minimum(rows, len(chosen) - 1)]
                piece = {name: values[some] for name, values in piece.items()}
            yield piece


# --- Arrays and tables ---


def _no_rows(file, split):
    if split.keeps_all:
        return f"{file}: expected at least one row without gaps, found none; add rows, or say --missing indicate"
    return f"{file}: expected rows in the {split.part} part, there are none; change the split"


def _figures(rows, inputs, schema, roles, written, unused):
    return {
        "rows": rows,
        "inputs": inputs,
        "columns": list(schema.columns),
        "target": roles.y if "y" in written else None,
        "classes": list(schema.classes),
        "roles": {name: roles.companions.get(name, name) for name in COMPANIONS if name in written}
        | ({"id": roles.id} if roles.id else {}),
        "unused": unused,
    }


def _chosen_rows(n, mask, split, file, columns):
    """Return the numbers of the selected rows out of `n`, in order; None for all rows."""
    if split.keeps_all:
        if split.part != "all":
            raise InvalidOption(f"{file}: part {split.part!r} needs --holdout or --mask; the file has no split")
        return None
    if split.mask is None:
        order = np.random.default_rng(split.seed).permutation(n)
        test = int(split.holdout * n)
        return {"test": order[:test], "train": order[test:], "all": order}[split.part]
    if mask is None:
        raise DataNotFound(f"{file}: expected a mask {split.mask!r}, found {', '.join(columns)}; name one of these")
    mask = np.atleast_2d(mask)
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
    return np.flatnonzero({"test": chosen, "train": ~chosen, "all": np.ones(n, bool)}[split.part])
