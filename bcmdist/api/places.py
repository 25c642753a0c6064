"""URLs of data and models: rows in memory, and models without a path, get scratch directories."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from bcmdist.api.in_memory_rows import InMemoryRows, Rows
from bcmdist.data.groups import Location
from bcmdist.data.schema import UNNAMED, Schema
from bcmdist.errors import InvalidOption
from bcmdist.learning.settings import Settings
from bcmdist.storage.temporary import Scratch

DataSource = Location | Rows | ArrayLike | tuple[ArrayLike, ArrayLike]
"""a path or URL, rows in memory, inputs X (n, D) with the targets in the argument y, or a pair (X, y)"""


def asked(
    source: DataSource,
    y: ArrayLike | Settings | None,
    settings: Settings | None,
    companions: Mapping[str, ArrayLike] | None,
    sphere: tuple[str, str] | None = None,
) -> tuple[Any, Settings]:
    """Return the source (`source_of_rows`) and the settings.

    The arguments are (source, settings) or (X, y, settings): `Settings` may be passed in the place of y.

    Raises
    ------
    InvalidOption
    """
    if isinstance(y, Settings):
        y, settings = None, y
    settings, found = settings or Settings(), source_of_rows(source, y, companions)
    if isinstance(found, InMemoryRows) and settings.output is not None:
        found = replace(found, output=settings.output)
    if sphere is not None and not isinstance(found, InMemoryRows):
        raise InvalidOption(
            "sphere: expected a data frame X and y with columns of degrees, got a path or URL; give --sphere to "
            "`bcmdist import`, or `bcmdist fit` of a table"
        )
    return (found if sphere is None else replace(found, sphere=sphere)), settings


def source_of_rows(source: DataSource, y: ArrayLike | None, companions: Mapping[str, ArrayLike] | None) -> Any:
    """Return the source: a path or URL, or the rows X, y and companions as `InMemoryRows` where y is given.

    Raises
    ------
    InvalidOption
    """
    if y is not None:
        return InMemoryRows(source, y, companions or {})
    if companions:
        raise InvalidOption("companions: expected rows X and y that they stand beside, got a place; store them there")
    return source


def places(
    source: DataSource, model: Location | None, *, like: Schema = UNNAMED
) -> tuple[tuple[Scratch, ...], Any, Any]:
    """Return scratch directories that must be kept alive, the URL of the data, and the path of the model.

    Rows in memory are written to a scratch directory, with the coding of `like`, and so is the model where `model` is
    None.
    """
    keep, source = placed(source, like=like)
    if model is None:
        keep = (*keep, Scratch())
        model = Path(keep[-1].path, "model")
    return keep, source, model


def placed(source: DataSource, *, like: Schema = UNNAMED) -> tuple[tuple[Scratch, ...], Any]:
    """Return scratch directories that must be kept alive, and the URL of the rows.

    `source`: a path or URL, rows in memory, or (X, y). `like`: schema of the training data, with its coding of columns.
    """
    if isinstance(source, tuple):
        source = InMemoryRows(*source)
    if isinstance(source, InMemoryRows) and like.coding:
        source = replace(source, coding=like.coding)
    if not isinstance(source, Rows):
        return (), source
    scratch, url = source.written()
    return (scratch,), url


@contextlib.contextmanager
def targets_of(
    source: DataSource,
    y: ArrayLike | None,
    companions: Mapping[str, ArrayLike] | None,
    names: str,
    *,
    like: Schema = UNNAMED,
) -> Iterator[tuple[Any, str]]:
    """Context manager: return the URL of rows with targets, and the name of their target array.

    Parameters
    ----------
    y : the targets, where `source` is X; else the name of the target array in `source`
    names : name of the target array in training, the default
    like : schema of the training data
    """
    name, y = (y or names, None) if y is None or isinstance(y, str) else ("y", y)
    keep, url = placed(source_of_rows(source, y, companions), like=like)
    yield url, "y" if keep else name
    del keep
