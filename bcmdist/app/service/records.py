"""Rows of a request as objects by column name, as in the table that a model was fitted to."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bcmdist.data.schema import few
from bcmdist.data.tables.coding import Coding, plain
from bcmdist.data.tables.column import NUMBERS, TEXTS, Column, Table, trimmed
from bcmdist.errors import InvalidData, InvalidDtype
from bcmdist.model.model import Model

WHERE = "rows"


def inputs_of(model: Model, records: Sequence[dict[str, Any]]) -> np.ndarray:
    """Return the inputs (n, D) of rows, coded as in training. Names that the model does not use are ignored.

    Raises
    ------
    InvalidData
        A column is not given (null says that a value is missing), a level was not seen in training, or a value is
        missing in a column that had no gaps in training.
    InvalidDtype
        A value has another type than in training.
    """
    coding = model.schema.coding or plain(model.schema.columns)
    if not coding.columns:
        raise InvalidData("rows: expected X, the columns of the training data had no names; give a list of numbers")
    return inputs_of_table({name: column_of(records, name) for name in coding.columns}, coding)


def inputs_of_table(table: Table, coding: Coding) -> np.ndarray:
    """Return the inputs (n, D) of the columns of a table; errors as `inputs_of`."""
    found = coding.numbers(table, WHERE)
    gaps = np.argwhere(np.isnan(found))
    if len(gaps):
        row, column = gaps[0]
        owner = [code.name for code in coding.codes for _ in code.inputs][column]
        raise InvalidData(
            f"{WHERE}: expected a value in each row of {owner!r}, which had no gaps in training, got null in row "
            f"{row}; give one"
        )
    return found


def target_name(model: Model) -> str:
    """Return the name of the target in training."""
    coding = model.schema.coding
    return dict(coding.roles).get("y", model.y_name) if coding else model.y_name


def target_of(model: Model, records: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the targets (n,) of rows, by the name of the target in training.

    Raises
    ------
    InvalidData
        A row has none.
    """
    name = target_name(model)
    values = _values(records, name, "give it")
    empty = next((row for row, value in enumerate(values) if value is None), None)
    if empty is not None:
        raise InvalidData(f"{WHERE}: expected the target {name!r} in each row, got null in row {empty}; drop the row")
    return values


def column_of(records: Sequence[dict[str, Any]], name: str) -> Column:
    """Return the values of a name as a column: numbers (null as nan), or texts.

    Raises
    ------
    InvalidData
        A row lacks the name.
    InvalidDtype
        There are both texts and numbers.
    """
    values = _values(records, name, "give it, or null where the value is unknown")
    missing = np.array([value is None for value in values])
    texts = [isinstance(value, str) for value in values]
    if not any(texts):
        if not missing.any() and all(isinstance(value, bool) for value in values):
            return Column(name, np.array(values, dtype=bool), NUMBERS, missing)
        return Column(name, np.array([np.nan if v is None else v for v in values], dtype=float), NUMBERS, missing)
    if not all(text or gone for text, gone in zip(texts, missing.tolist(), strict=True)):
        row = texts.index(True)
        raise InvalidDtype(
            f"{WHERE}: expected numbers, or texts, in all rows of {name!r}, got both, the first text in row {row}; "
            "write all as one of these"
        )
    return trimmed(Column(name, np.array(["" if v is None else v for v in values], dtype=object), TEXTS, missing))


def _values(records, name, remedy):
    try:
        return [record[name] for record in records]
    except KeyError:
        row = next(row for row, record in enumerate(records) if name not in record)
        given = few(map(repr, records[row])) or "none"
        raise InvalidData(
            f"{WHERE}: expected the column {name!r} in each row, row {row} has {given}; {remedy}"
        ) from None


def refuse_impossible(model: Model, X: np.ndarray) -> None:
    """Raise `InvalidData` for inputs X (n, D), given as numbers, that no row of a table is coded as.

    Among the inputs of a category, one is 1 and the others are 0, or all have the value of an unknown level.
    """
    coding, start = model.schema.coding, 0
    if X.shape[1] != model.inputs:
        return  # refused by its width
    for code in coding.codes if coding else ():
        stop = start + len(code.inputs)
        unseen = getattr(code, "unseen", None)
        if unseen is not None:
            given = X[:, start:stop]
            known = np.all((given == 0.0) | (given == 1.0), axis=1) & (given.sum(axis=1) == 1.0)
            odd = np.flatnonzero(~(known | np.all(np.isclose(given, unseen, rtol=1e-12, atol=0.0), axis=1)))
            if len(odd):
                raise InvalidData(
                    f"X: expected 1 in one of the inputs {few(map(repr, code.inputs))} and 0 in the others, got "
                    f"{given[odd[0]].tolist()!s:.80} in row {odd[0]}; give one of the levels, or `rows` with "
                    f"{code.name!r} as a text"
                )
        start = stop
