"""Data frames in memory as tables: columns that are not numeric become inputs as in a file.

Frames of libraries other than pandas are converted to pandas with narwhals.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from bcmdist.data.schema import few, found_instead, warn
from bcmdist.data.tables.coding import Coding, unknown_levels_described
from bcmdist.data.tables.column import NUMBERS, TEXTS
from bcmdist.data.tables.delimited import of_frame
from bcmdist.data.tables.look import Look, choose_codes, described_quantities
from bcmdist.data.tables.roles import pair_of
from bcmdist.data.tables.sphere import Sphere, with_spheres
from bcmdist.errors import DataNotFound, InvalidData, InvalidDtype, MissingExtra

MOST_NAMED = 8  # columns in an error message


def framed(X) -> Any:
    """Convert a data frame of polars, Arrow or another library to pandas; return anything else unchanged.

    Raises
    ------
    MissingExtra
    """
    if hasattr(X, "iloc") or not hasattr(X, "schema"):
        return X
    try:
        import narwhals

        found = narwhals.from_native(X, eager_only=True, pass_through=True)
        return X if found is X else found.to_pandas()
    except ImportError as error:
        raise MissingExtra(
            f"X: expected narwhals, pandas and pyarrow, to read a table of {type(X).__module__} ({error}); "
            "pip install 'bcmdist[tables]', or give a data frame of pandas, or an array"
        ) from error


def has_categories(X) -> bool:
    """Return whether X is a data frame with a column whose dtype is not numeric; values are not examined."""
    kinds: Any = getattr(X, "dtypes", None)
    return hasattr(X, "iloc") and any(getattr(kind, "kind", "O") not in "fiub" for kind in kinds)


def coding_of(
    X,
    *,
    missing: Literal["auto", "error"] = "auto",
    unseen: Literal["other", "error"] = "other",
    output: str | None = None,
    sphere: Sequence[str] | None = None,
) -> Coding | None:
    """Return the coding of a data frame; None if X is not a data frame, or all columns are numbers without gaps.

    Gaps are filled with means and marked by indicators, levels that training lacks are taken for random ones, and
    columns whose type is unclear, or that number the rows, are left out, with warnings.

    Parameters
    ----------
    missing, unseen : "error" to refuse gaps, and later levels that X lacks
    output : column that names outputs, a category even if it holds numbers
    sphere : columns of longitude and latitude, in degrees, as a point on the unit sphere

    Raises
    ------
    DataNotFound
        A column of longitude or latitude is not there.
    InvalidData
        There are gaps, which are to be refused.
    InvalidDtype
        Every type is unclear.
    """
    spheres = _spheres(X, sphere)
    coded_output = output is not None and hasattr(X, "iloc") and output in map(str, X.columns)
    if not (has_categories(X) or _has_gaps(X) or _may_number_rows(X) or coded_output or spheres):
        return None
    table = of_frame(X)
    looks = {name: Look(name, leveled=name == output) for name in table}
    for name, look in looks.items():
        look.see(table[name])
    plain = (look.kinds <= {NUMBERS} and not look.gaps and not look.names_rows for look in looks.values())
    if all(plain) and not coded_output and not spheres:
        return None
    others = {name: look for name, look in looks.items() if name not in {n for one in spheres for n in one.columns}}
    codes, unclear, numbering = choose_codes(others, "X", indicate=True, lenient=True)
    if unclear:
        names = [look.name for look in unclear]
        shown = "; ".join(look.described() for look in unclear[:MOST_NAMED])
        levels = f"give X.astype({{{names[0]!r}: 'category'}}) where texts are levels"
        if not codes and not spheres:
            raise InvalidDtype(
                f"X: expected numbers, dates or categories of few levels, got {shown}; {levels}, or other columns"
            )
        hint = f"; {levels}" if TEXTS in unclear[0].kinds else ""
        warn(f"X: {few(map(repr, names))} not used: {shown}{hint}")
    if numbering:
        warn(f"X: {few(repr(look.name) for look in numbering)} not used: it numbers the rows")
    if as_numbers := described_quantities(looks[name] for name in codes):
        warn(f"X: texts are read as numbers in {few(as_numbers)}; X.astype('category') takes them for levels")
    if filled := [f"{name!r} ({looks[name].gaps})" for name in codes if looks[name].gaps]:
        if missing == "error":
            raise InvalidData(f"X: expected a value in each row, got gaps in {few(filled)}; fill or drop them")
        warn(f"X: gaps are filled with the mean and marked by an indicator in {few(filled)}")
    return Coding(with_spheres(codes, list(table), spheres), "indicate" if filled else "error", unseen)


def _spheres(X, sphere) -> list[Sphere]:
    """Return the code of columns of longitude and latitude, in a list, empty if none are named."""
    if sphere is None:
        return []
    found, there = Sphere(*pair_of(sphere)), list(map(str, getattr(X, "columns", ())))
    missing = [name for name in found.columns if name not in there]
    if missing:
        instead = found_instead(missing[0], there) if there else "none with a name"
        raise DataNotFound(
            f"sphere: expected a data frame with a column {missing[0]!r} of degrees, found {instead}; correct the names"
        )
    return [found]


def _has_gaps(X):
    """Return whether X is a data frame in memory with missing values."""
    return hasattr(X, "iloc") and hasattr(X, "to_numpy") and bool(X.isna().to_numpy().any())


def _may_number_rows(X):
    """Return whether X is a data frame in memory with a column that is named as identifiers of rows are."""
    there = hasattr(X, "iloc") and hasattr(X, "to_numpy")
    return there and any(Look(str(name)).names_rows_by_name for name in X.columns)


def is_uncoded(X, coding: Coding) -> bool:
    """Return whether X is a data frame with the columns of a table that still have to be coded.

    A frame that already contains all inputs as numbers is coded, for example if a column of dates holds days.
    """
    if not (hasattr(X, "iloc") and coding.descriptions()):
        return False
    columns = {str(name): name for name in X.columns}
    if set(coding.inputs) <= set(columns) and not has_categories(X[[columns[name] for name in coding.inputs]]):
        return False
    return set(coding.columns) <= set(columns)


def refuse_others(X, coding: Coding) -> None:
    """Raise `InvalidDtype` if X is not a data frame."""
    if not hasattr(X, "iloc"):
        raise InvalidDtype(
            f"X: expected a data frame with the columns of training ({few(map(repr, coding.columns))}), got "
            f"{type(X).__name__}; give one"
        )


def coded(X, coding: Coding) -> np.ndarray:
    """Return the inputs (n, D) of a data frame with the columns of a table; other columns are ignored.

    Levels that training lacks are counted in a warning, unless the coding refuses them.

    Raises
    ------
    InvalidData, InvalidDtype
    """
    named = {str(name): name for name in X.columns}
    table = of_frame(X[[named[name] for name in coding.columns]])
    for name in coding.columns:
        gaps = np.flatnonzero(table[name].gaps)
        needed = coding.missing == "error" or any(name in sphere.columns for _, sphere in coding.points)
        if len(gaps) and needed:
            raise InvalidData(
                f"X: expected a number, a level or a date in each row of {name!r}, none at row {gaps[0]} "
                f"({len(gaps)} such rows); fill or drop them"
            )
    found = coding.numbers(table, "X")
    for name, count in coding.unknown_levels(found).items():
        warn(f"X: {unknown_levels_described(name, count)}")
    return found
