"""A table as the rows of a data set: planned in a first reading, encoded in a second, piece by piece.

The first reading finds levels, means and dates (`look`) and may be left out where the file itself says that all is
numbers, or a model says what its columns are. Nothing but counts of these is kept of it, so that memory is flat.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from bcmdist.data.tables.coding import Coding, Number
from bcmdist.data.tables.column import NUMBERS
from bcmdist.data.tables.columns import FILL, Target, all_whole, names_of_rows, numbers_of, target_of
from bcmdist.data.tables.look import Look
from bcmdist.data.tables.roles import Roles, named_columns
from bcmdist.data.tables.tables import Named
from bcmdist.data.values import LARGEST
from bcmdist.errors import InvalidData, InvalidDtype


@dataclass(frozen=True)
class Plan:
    """What becomes of the columns of a table."""

    roles: Roles
    coding: Coding
    target: Target | None
    unused: dict[str, str]
    """why other columns are not used, by name"""
    texts: frozenset[str]
    """columns to read as they are written"""
    whole_names: bool = True
    """whether what names rows are whole numbers"""
    rows: int | None = None
    """of the table, where they were counted"""
    mask: np.ndarray | None = None
    """of a column that selects rows: its numbers, (rows,)"""


@dataclass
class _Seen:
    """What a first reading finds."""

    looks: dict[str, Look]
    whole_names: bool = True
    rows: int = 0
    mask: list[np.ndarray] = field(default_factory=list)


def plan(table: Named, roles: Roles, *, mask=None, count=False) -> Plan:
    """What becomes of the columns of a table, by its roles; one reading of it, or two, where it needs one.

    Parameters
    ----------
    mask : name of a column that selects rows
    count : whether rows have to be counted

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, InvalidOption
    """
    inputs, unused = named_columns(table.names, table.file, roles, besides=(mask,) if mask in table.names else ())
    simple = roles.coding is not None or _are_numbers(table, inputs, roles)
    known = roles.target and (table.kinds or {}).get(roles.y) == NUMBERS
    if simple and not roles.id and mask is None and not count and (known or not roles.target):
        dtype = _target_dtype(table, roles) if roles.target else None
        coding = roles.coding or _coding(tuple(map(Number, inputs)), roles)
        return Plan(roles, coding, Target((), dtype) if dtype else None, unused, roles.texts)
    looked = [] if roles.coding else inputs
    texts = roles.texts
    seen = _seen(table, roles, looked, texts, mask)
    mixed = {name for name, look in seen.looks.items() if look.mixed}
    if mixed:  # a reader of pieces takes some for numbers and some for texts: as texts, all of them
        texts |= mixed
        seen = _seen(table, roles, looked, texts, mask)
    target = target_of(seen.looks[roles.y], table.file, gaps=roles.missing == "drop") if roles.target else None
    coding = roles.coding or _coding(_codes(seen.looks, inputs, roles, table.file), roles)
    found = np.concatenate(seen.mask) if seen.mask else None
    return Plan(roles, coding, target, unused, texts, seen.whole_names, seen.rows, found)


def _are_numbers(table, inputs, roles):
    """Whether a file says that all inputs are numbers, of which nothing has to be known before they are read."""
    kinds = table.kinds or {}
    return not roles.said and roles.missing != "indicate" and all(kinds.get(name) == NUMBERS for name in inputs)


def _target_dtype(table, roles):
    """Type of the numbers of a target, of its first piece; float64 where a gap may turn them into it."""
    first = next(table.pieces(), None)
    column = first and first[roles.y]
    return np.dtype(float) if column is None or column.gaps.any() else column.values.dtype


def _coding(codes, roles):
    said = ([("y", roles.y)] if roles.target else []) + list(roles.companions.items())
    return Coding(codes, roles.missing, roles.unseen or "error", tuple(said))


def _seen(table, roles, inputs, texts, mask) -> _Seen:
    names = [*inputs, *([roles.y] if roles.target else [])]
    looks = {n: Look(n, form=roles.date.get(n, ""), leveled=n in roles.category) for n in names}
    seen = _Seen(looks)
    for piece in table.pieces(texts=texts):
        for name, look in looks.items():
            look.see(piece[name])
        if roles.id:
            names_of_rows(piece[roles.id], table.file, start=seen.rows)
            seen.whole_names &= all_whole(piece[roles.id])
        if mask in piece:
            seen.mask.append(_mask_of(piece[mask], table.file))
        seen.rows += len(next(iter(piece.values())).values)
    return seen


def _mask_of(column, file):
    if column.kind != NUMBERS:
        raise InvalidDtype(
            f"{file}: expected numbers in the mask {column.name!r}, got {column.kind}; write 1 at test rows, else 0"
        )
    return column.values


def _codes(looks, inputs, roles, file):
    """A code for each input; those of which it cannot be told are named, all of them."""
    indicate = roles.missing == "indicate"
    found = {name: looks[name].code(file, cycles=roles.cyclic.get(name, ()), indicate=indicate) for name in inputs}
    odd = [name for name, code in found.items() if code is None]
    if odd:
        more = f" and {len(odd) - 8} more" * (len(odd) > 8)
        holds = "; ".join(looks[name].described() for name in odd[:8])
        first = quoted(odd[0])
        drop = " ".join(f"--drop {quoted(name)}" for name in odd[:8]) + more
        raise InvalidDtype(
            f"{file}: expected numbers, dates or categories of few levels in the inputs, got {holds}{more}; correct "
            f"them, say --category {first} where texts are levels, or leave them out with {drop}"
        )
    return tuple(found.values())


def quoted(name) -> str:
    """A name as a shell takes it."""
    return name if name.isidentifier() else f"'{name}'"


def encoded(table: Named, plan: Plan) -> Iterator[dict[str, np.ndarray]]:
    """Pieces of rows: X, y, companions, what names the rows, and `row`, where they stood; without those that are to be
    left out.

    Raises
    ------
    InvalidData, InvalidDtype
    """
    start = 0
    for piece in table.pieces(texts=plan.texts):
        columns = _numbers(piece, plan, table.file, start)
        if plan.roles.id:
            names = names_of_rows(piece[plan.roles.id], table.file, start=start)
            columns[plan.roles.id] = names.astype(np.int64) if plan.whole_names else names.astype(str)
        rows = len(columns["X"])
        columns["row"] = np.arange(start, start + rows)
        whole = _without_gaps(columns)
        if not whole.all():
            if plan.roles.missing != "drop":
                _refuse_gap(columns["X"], plan, table.file, start)
            columns = {name: values[whole] for name, values in columns.items()}
        if plan.target is not None:
            columns["y"] = columns["y"].astype(plan.target.dtype)
        yield columns
        start += rows


def _numbers(piece, plan, file, start):
    """Inputs, target and companions of a piece; nan where rows may have gaps."""
    roles, gaps = plan.roles, plan.roles.missing == "drop"
    columns = {"X": plan.coding.numbers(piece, file, start=start, unseen=roles.unseen)}
    if plan.target is not None:
        columns["y"] = plan.target.numbers(piece[roles.y], file, start=start, gaps=gaps)
    for role, name in roles.companions.items():
        columns[role] = numbers_of(piece[name], file, start=start, gaps=gaps)
    return columns


def _without_gaps(columns):
    """Rows (n,) of which every number is there."""
    whole = np.ones(len(columns["X"]), bool)
    floats = [values for values in columns.values() if values.dtype.kind == "f" and values.size]
    for values in (values for values in floats if np.isnan(values.min())):
        there = ~np.isnan(values)
        whole &= there.all(axis=1) if there.ndim == 2 else there
    return whole


def _refuse_gap(X, plan, file, start):
    """Raise of the first gap in the inputs, with what would let it pass."""
    row, column = np.argwhere(np.isnan(X))[0]
    owner = [code.name for code in plan.coding.codes for _ in code.inputs][column]
    count = int(np.isnan(X[:, column]).sum())
    remedy = f"{FILL}, or say --missing drop or --missing indicate"
    if plan.roles.coding is not None:
        remedy = f"{FILL}: the model was fitted with --missing {plan.roles.missing}, to rows without gaps there"
    raise InvalidData(
        f"{file}: expected a finite number (up to {LARGEST:g}), a date or a level in each row of {owner!r}, got nan at "
        f"row {start + row} ({count} such values); {remedy}"
    )
