"""Where the data and the model of a fit lie: rows in memory, and models without a path, in scratch directories."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bcmdist.api.in_memory_rows import InMemoryRows, Rows
from bcmdist.data.schema import UNNAMED, Schema
from bcmdist.errors import InvalidOption
from bcmdist.learning.settings import Settings
from bcmdist.storage.scratch import Scratch


def asked(source, y, settings, companions) -> tuple[Any, Settings]:
    """What is to be absorbed, a place or rows, and how: of the arguments (source, settings), or (X, y, settings).

    Raises
    ------
    InvalidOption
    """
    if isinstance(y, Settings):
        y, settings = None, y
    if y is not None:
        source = InMemoryRows(source, y, companions or {})
    elif companions:
        raise InvalidOption("companions: expected rows X and y that they stand beside, got a place; store them there")
    return source, settings or Settings()


def places(source, model) -> tuple[tuple[Scratch, ...], Any, Any]:
    """What must be kept alive, the data's URL and the model's path, scratch ones where not given."""
    keep, source = placed(source)
    if model is None:
        keep = (*keep, Scratch())
        model = Path(keep[-1].path, "model")
    return keep, source, model


def placed(source, *, like: Schema = UNNAMED) -> tuple[tuple[Scratch, ...], Any]:
    """What must be kept alive, and the URL of rows: of a place, or of (X, y), a table as in training (`like`)."""
    if isinstance(source, tuple):
        source = InMemoryRows(*source)
    if isinstance(source, InMemoryRows) and like.coding:
        source = replace(source, coding=like.coding)
    if not isinstance(source, Rows):
        return (), source
    scratch, url = source.written()
    return (scratch,), url


@contextlib.contextmanager
def targets_of(source, y, companions, names, *, like: Schema = UNNAMED) -> Iterator[tuple[Any, str]]:
    """URL of rows with targets, and the name of these: `y` if it is a text, of a place; else they are `y`.

    Parameters
    ----------
    names : of the arrays of the targets in training
    like : of the rows in training
    """
    if y is None or isinstance(y, str):
        source, _ = asked(source, None, None, companions)
        name = y or names
    else:
        source, _ = asked(source, y, None, companions)
        name = "y"
    keep, url = placed(source, like=like)
    yield url, "y" if keep else name
    del keep
