"""Files into data sets: .npz, .npy, .csv and .parquet become a Zarr group with X and y.

Arrays or columns named `weight`, `exposure`, `trials` and `event` are copied by name; the target
is `--y`; all other numeric columns are inputs. A part of the rows can be held out by a seeded
permutation or by a stored mask.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from bcmdist.arrays import COMPANIONS
from bcmdist.dataset import ROWS_PER_CHUNK, write_dataset
from bcmdist.disk import leads_nowhere
from bcmdist.errors import BcmdistError, DataNotFound, InvalidData, InvalidDtype, InvalidOption, MissingExtra

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


def import_file(file, url, *, y="y", split=None, rows_per_chunk=ROWS_PER_CHUNK) -> dict:
    """Write the rows of a file as a data set.

    Returns
    -------
    dict with `rows`, `inputs`, `part` and `out`

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, InvalidOption, DataExists, MissingExtra
    """
    split = split or Split()
    if rows_per_chunk < 1:
        raise InvalidOption(f"rows-per-chunk: expected at least 1, got {rows_per_chunk}; give a positive number")
    columns = _select(_columns(Path(file), y, split.part), split, file)
    if len(columns["X"]) == 0:
        raise InvalidData(f"{file}: expected rows in the {split.part} part, there are none; change the split")
    write_dataset(url, columns, rows_per_chunk=rows_per_chunk, attributes={"source": Path(file).name})
    return {"rows": len(columns["X"]), "inputs": columns["X"].shape[1], "part": split.part, "out": str(url)}


def _columns(file, y, part) -> dict[str, np.ndarray]:
    """X, y, companions and 1-D or 2-D masks of a file, unsplit (or with the file's own split)."""
    if not file.is_file():
        raise DataNotFound(f"{file}: expected a file, {leads_nowhere(file) or 'there is none'}; check the path")
    if file.suffix not in READERS:
        raise InvalidOption(f"{file}: expected a file that ends in {', '.join(READERS)}; convert it first")
    try:
        table = READERS[file.suffix](file)
    except BcmdistError:
        raise
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        raise InvalidData(
            f"{file}: expected a {file.suffix} file of numbers, it cannot be read ({error}); save it again"
        ) from error
    return _from_arrays(table, file, y, part) if file.suffix == ".npz" else _from_table(table, file, y)


def _from_arrays(arrays, file, y, part):
    if "X_train" in arrays:
        parts = ["train", "test"] if part == "all" else [part]
        names = {n.rsplit("_", 1)[0] for n in arrays if n.endswith("_train")}
        missing = {f"{n}_{p}" for n in names for p in parts} - arrays.keys()
        if missing:
            raise DataNotFound(
                f"{file}: expected arrays {', '.join(sorted(missing))} beside those it holds; add them, or choose "
                "another --part"
            )
        arrays = {n: np.concatenate([arrays[f"{n}_{p}"] for p in parts]) for n in sorted(names)}
        arrays["own_split"] = np.zeros(0)
    if not {"X", y} <= arrays.keys():
        raise DataNotFound(f"{file}: expected arrays X and {y}, found {', '.join(arrays)}; name the target with --y")
    _check_target(arrays[y], file, y)
    return {"y" if name == y else name: a for name, a in arrays.items() if name == y or name != "y"}


def _npz_arrays(file):
    with np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _npy_table(file):
    table = np.load(file, allow_pickle=False)
    if table.dtype.names:
        return {name: table[name] for name in table.dtype.names}
    if table.ndim != 2 or table.shape[1] < 2:
        raise InvalidData(
            f"{file}: expected a structured array, or a 2-D one whose last column is the target, got shape "
            f"{table.shape}; save it as .npz with X and y"
        )
    return {**{f"column{k}": table[:, k] for k in range(table.shape[1] - 1)}, "y": table[:, -1]}


def _pandas_table(file):
    try:
        import pandas
    except ImportError as error:
        raise MissingExtra(
            f"{file}: reading {file.suffix} files needs pandas and pyarrow; pip install 'bcmdist[tables]'"
        ) from error
    read = pandas.read_csv if file.suffix == ".csv" else pandas.read_parquet
    frame = read(file)
    return {str(name): frame[name].to_numpy() for name in frame.columns}


READERS = {".npz": _npz_arrays, ".npy": _npy_table, ".csv": _pandas_table, ".parquet": _pandas_table}


def _from_table(table: Mapping[str, np.ndarray], file, y):
    if y not in table:
        raise DataNotFound(f"{file}: expected a column {y!r}, found {', '.join(table)}; name the target with --y")
    numeric = [n for n, v in table.items() if n not in (y, *COMPANIONS) and v.dtype.kind in "fiub"]
    if not numeric:
        raise InvalidData(f"{file}: expected numeric columns besides {y!r}, found none; add inputs")
    _check_target(table[y], file, y)
    X = np.column_stack([np.asarray(table[n], dtype=float) for n in numeric])
    return {"X": X, "y": table[y], **{n: table[n] for n in COMPANIONS if n in table}}


def _check_target(target, file, y):
    if target.ndim != 1:
        raise InvalidData(
            f"{file}: expected one target per row in {y}, got shape {target.shape}; save the wanted column as an "
            "array of its own and name it with --y"
        )
    if target.dtype.kind not in "fiub":
        raise InvalidDtype(f"{file}: expected numbers in {y}, got dtype {target.dtype}; code the values as numbers")


def _select(columns, split, file):
    """The wanted part of X, y and companions."""
    own = columns.pop("own_split", None) is not None
    kept = {n: columns[n] for n in ("X", "y", *COMPANIONS) if n in columns}
    for name, column in kept.items():
        if column.dtype.kind not in "fiub":
            raise InvalidDtype(f"{file}: expected numbers in {name}, got dtype {column.dtype}; convert it")
        if len(column) != len(kept["X"]):
            raise InvalidData(
                f"{file}: expected {len(kept['X'])} rows in {name} as in X, got {len(column)}; correct the file"
            )
    if kept["X"].ndim != 2:
        raise InvalidData(f"{file}: expected X with shape (N, D), got {kept['X'].shape}; reshape it")
    if split.holdout is None and split.mask is None:
        if split.part != "all" and not own:
            raise InvalidOption(f"{file}: part {split.part!r} needs --holdout or --mask; the file has no split")
        return kept
    if own:
        raise InvalidOption(f"{file}: brings its own split; leave out --holdout and --mask")
    rows = _chosen_rows(columns, split, file)
    return {name: column[rows] for name, column in kept.items()}


def _chosen_rows(columns, split, file):
    n = len(columns["X"])
    if split.mask is None:
        order = np.random.default_rng(split.seed).permutation(n)
        test = int(split.holdout * n)
        return {"test": order[:test], "train": order[test:], "all": order}[split.part]
    if split.mask not in columns:
        raise DataNotFound(f"{file}: expected a mask {split.mask!r}, found {', '.join(columns)}; name one of these")
    mask = np.atleast_2d(columns[split.mask])
    if mask.shape[1] != n or not 0 <= split.mask_row < len(mask):
        raise InvalidOption(
            f"{file}: expected mask {split.mask} with {n} columns and a row {split.mask_row}, got shape "
            f"{mask.shape}; correct --mask-row"
        )
    chosen = mask[split.mask_row] == 1
    return {"test": chosen, "train": ~chosen, "all": np.ones(n, bool)}[split.part]
