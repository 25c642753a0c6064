"""Encode a table as rows of a data set, piece by piece: plan in a first pass, encode in a second.

The first pass finds categories, means and dates (`look`). It is skipped if the file's types show that all columns are
numbers, or if a model defines the coding. It keeps only summary counts, so memory use is constant.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from bcmdist.data.observations import TARGET_VARIANCE
from bcmdist.data.schema import few, warn
from bcmdist.data.tables.coding import Coding, Number, Quantity, unknown_levels_described
from bcmdist.data.tables.column import NUMBERS
from bcmdist.data.tables.columns import FILL, Target, all_whole, names_of_rows, numbers_of, refuse_negative, target_of
from bcmdist.data.tables.look import Look, choose_codes, described_quantities, quoted
from bcmdist.data.tables.roles import Roles, named_columns
from bcmdist.data.tables.sphere import Sphere, with_spheres
from bcmdist.data.tables.tables import Named
from bcmdist.data.values import LARGEST
from bcmdist.errors import InvalidData, InvalidDtype


@dataclass(frozen=True)
class Plan:
    """How the columns of a table are used."""

    roles: Roles
    coding: Coding
    target: Target | None
    unused: dict[str, str]
    """reason for which other columns are not used, by name"""
    texts: frozenset[str]
    """columns to read as unparsed texts"""
    whole_names: bool = True
    """whether row identifiers are whole numbers"""
    rows: int | None = None
    """rows of the table, if they were counted"""
    mask: np.ndarray | None = None
    """numbers of the column that selects rows, (rows,)"""
    without_zones: tuple[str, ...] = ()
    """columns of dates with times, but without time zones"""


@dataclass
class _Seen:
    """Results of the first pass."""

    looks: dict[str, Look]
    whole_names: bool = True
    rows: int = 0
    mask: list[np.ndarray] = field(default_factory=list)


def plan(table: Named, roles: Roles, *, mask=None, count=False) -> Plan:
    """Plan the use of a table's columns from their roles, with at most two passes over the table.

    Parameters
    ----------
    mask : name of a column that selects rows
    count : whether the number of rows is needed

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, InvalidOption
    """
    inputs, unused = named_columns(table.names, table.file, roles, besides=(mask,) if mask in table.names else ())
    simple = roles.coding is not None or _are_numbers(table, inputs, roles)
    numeric_target = roles.target and (table.kinds or {}).get(roles.y) == NUMBERS
    if simple and not roles.id and mask is None and not count and (numeric_target or not roles.target):
        dtype = _target_dtype(table, roles) if roles.target else None
        coding = roles.coding or _coding(tuple(map(Number, inputs)), roles)
        return Plan(roles, coding, Target((), dtype) if dtype else None, unused, roles.texts)
    looked = [] if roles.coding else inputs
    texts = roles.texts
    seen = _seen(table, roles, looked, texts, mask)
    mixed = {name for name, look in seen.looks.items() if look.mixed}
    if mixed:  # some pieces were parsed as numbers and others as texts: read all as texts
        texts |= mixed
        seen = _seen(table, roles, looked, texts, mask)
    target = None
    if roles.target:
        target = target_of(
            seen.looks[roles.y], table.file, gaps=roles.drops, lenient=roles.lenient or bool(roles.coding)
        )
    coding, naive = roles.coding, ()
    if coding is None:
        codes, left_out = _codes(seen.looks, inputs, roles, table.file)
        coding, unused = _coding(codes, roles), unused | left_out
        as_numbers = [code.name for code in codes if isinstance(code, Quantity)]
        as_numbers += [roles.y] if target and target.form else []
        _warn_of_quantities(as_numbers, seen.looks, table.file)
        _warn_of_gaps(coding, seen.looks, roles, table.file)
        hours = {name for name, look in seen.looks.items() if look.hours}
        naive = tuple(code.name for code in codes if code.kind == "date" and not code.zoned and code.name in hours)
    found = np.concatenate(seen.mask) if seen.mask else None
    return Plan(roles, coding, target, unused, texts, seen.whole_names, seen.rows, found, naive)


def _are_numbers(table, inputs, roles):
    """Return whether the file's types show that all inputs are numbers, so that no first pass is needed."""
    kinds = table.kinds or {}
    whole = roles.missing in ("error", "drop")
    named = roles.lenient and not roles.inputs and any(Look(name).names_rows_by_name for name in inputs)
    return not roles.type_options and whole and not named and all(kinds.get(name) == NUMBERS for name in inputs)


def _target_dtype(table, roles):
    """Return the dtype of a target from its first piece; float64 if that has gaps, or if there are no rows."""
    first = next(table.pieces(), None)
    column = first and first[roles.y]
    return np.dtype(float) if column is None or column.gaps.any() else column.values.dtype


def _coding(codes, roles):
    roles_of_columns = ([("y", roles.y)] if roles.target else []) + list(roles.companions.items())
    coding = Coding(codes, "indicate", roles.unseen or "error", tuple(roles_of_columns))
    if roles.missing == "auto":
        return coding if coding.indicators else replace(coding, missing="error")
    return replace(coding, missing=roles.missing)


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


def _warn_of_quantities(names, looks, file):
    """Warn of texts that are taken for numbers, with the first of each column and its number."""
    if told := described_quantities(looks[name] for name in names):
        warn(
            f"{file}: texts are read as numbers in {few(told)}; --category takes them for levels, --strict refuses them"
        )


def _warn_of_gaps(coding, looks, roles, file):
    """Warn of gaps that are filled without having been asked for."""
    names = (code.name for code in coding.codes if code.name in looks)  # not those of points on a sphere
    filled = [f"{name!r} ({looks[name].gaps})" for name in names if looks[name].gaps]
    if filled and roles.missing == "auto":
        warn(
            f"{file}: gaps are filled with the mean and marked by an indicator in {few(filled)}; --missing drop leaves "
            "these rows out, --strict refuses them"
        )


def _codes(looks, inputs, roles, file):
    """Return a code for each input, and why other columns are left out, by name.

    Raises `InvalidDtype` naming all inputs whose type is unclear, unless other inputs remain and `roles` are lenient.
    """
    lenient = roles.lenient and not roles.inputs
    spheres = [Sphere(*pair) for pair in roles.sphere]
    chosen, unclear, numbering = choose_codes(
        {name: looks[name] for name in inputs if not any(name in one.columns for one in spheres)},
        file,
        cycles=roles.cyclic,
        inputs=roles.type_options if lenient else inputs,
        indicate=roles.missing in ("indicate", "auto"),
        lenient=roles.lenient,
    )
    codes = with_spheres(chosen, inputs, spheres)
    odd = [look.name for look in unclear]
    if not unclear or (lenient and codes):
        left_out = {look.name: f"{look.described()} ({look.remedy})" for look in unclear} | {
            look.name: f"it numbers the rows (--id {quoted(look.name)} copies it to predictions, --x takes it)"
            for look in numbering
        }
        return codes, left_out
    more = f" and {len(odd) - 8} more" * (len(odd) > 8)
    holds = "; ".join(look.described() for look in unclear[:8])
    first = quoted(odd[0])
    drop = " ".join(f"--drop {quoted(name)}" for name in odd[:8]) + more
    raise InvalidDtype(
        f"{file}: expected numbers, dates or categories of few levels in the inputs, got {holds}{more}; correct them, "
        f"say --category {first} where texts are levels, or leave them out with {drop}"
    )


def encoded(table: Named, plan: Plan) -> Iterator[dict[str, np.ndarray]]:
    """Yield pieces of rows: X, y, companions, row identifiers, and the original row numbers `row`, without the rows to
    be dropped.

    Raises
    ------
    InvalidData, InvalidDtype
    """
    start, strange = 0, Counter[str]()
    for piece in table.pieces(texts=plan.texts):
        columns = _numbers(piece, plan, table.file, start)
        strange.update(plan.coding.unknown_levels(columns["X"]))
        if plan.roles.id:
            names = names_of_rows(piece[plan.roles.id], table.file, start=start)
            columns[plan.roles.id] = names.astype(np.int64) if plan.whole_names else names.astype(str)
        rows = len(columns["X"])
        columns["row"] = np.arange(start, start + rows)
        whole = _without_gaps(columns)
        if not whole.all():
            if plan.roles.missing != "drop" and np.isnan(columns["X"]).any():
                _refuse_gap(columns["X"], plan, table.file, start)
            columns = {name: values[whole] for name, values in columns.items()}
        if plan.target is not None:
            columns["y"] = columns["y"].astype(plan.target.dtype)
        yield columns
        start += rows
    for name, count in strange.items() if plan.roles.unseen is None else ():  # nobody has asked for it
        warn(f"{table.file}: {unknown_levels_described(name, count)}; --unseen error refuses such rows")


def _numbers(piece, plan, file, start):
    """Return the inputs, target and companions of a piece; nan where gaps are accepted."""
    roles, gaps = plan.roles, plan.roles.drops
    columns = {"X": plan.coding.numbers(piece, file, start=start, unseen=roles.unseen)}
    if plan.target is not None:
        columns["y"] = plan.target.numbers(piece[roles.y], file, start=start, gaps=gaps)
    for role, name in roles.companions.items():
        columns[role] = numbers_of(piece[name], file, start=start, gaps=gaps)
        if role == TARGET_VARIANCE:
            refuse_negative(columns[role], file, name, start=start)
    return columns


def _without_gaps(columns):
    """Return the mask (n,) of rows without any missing number."""
    whole = np.ones(len(columns["X"]), bool)
    floats = [values for values in columns.values() if values.dtype.kind == "f" and values.size]
    for values in (values for values in floats if np.isnan(values.min())):
        there = ~np.isnan(values)
        whole &= there.all(axis=1) if there.ndim == 2 else there
    return whole


def _refuse_gap(X, plan, file, start):
    """Raise for the first gap in the inputs, with the options that accept gaps."""
    row, column = np.argwhere(np.isnan(X))[0]
    owner, kind = [(code.name, code.kind) for code in plan.coding.codes for _ in code.inputs][column]
    count = int(np.isnan(X[:, column]).sum())
    remedy = f"{FILL}, or say --missing drop" + " or --missing indicate" * (kind != Sphere.kind)
    if plan.roles.coding is not None:
        remedy = f"{FILL}: the model was fitted with --missing {plan.roles.missing}, to rows without gaps there"
    raise InvalidData(
        f"{file}: expected a finite number (up to {LARGEST:g}), a date or a level in each row of {owner!r}, got nan at "
        f"row {start + row} ({count} such values); {remedy}"
    )
