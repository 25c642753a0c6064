"""Form for one row: the columns of the table that a model was fitted to, their ranges, and a row to start from."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bcmdist.committee.absorbed import partitions_of
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.rows import read_all
from bcmdist.data.tables.coding import Category, Code, Coding, Date, Number, Quantity, indicator_of, plain
from bcmdist.data.tables.dates import DAY, EPOCH
from bcmdist.data.tables.quantities import CURRENCIES
from bcmdist.data.tables.sphere import Sphere, degrees
from bcmdist.errors import BcmdistError
from bcmdist.model.model import Model

# Units as they are written; codes of columns have them in lower case.
SPELLED = {"°c": "°C", "°f": "°F", "k": "K", "pa": "Pa", "hpa": "hPa", "kpa": "kPa", "w": "W", "kw": "kW", "kwh": "kWh"}
SPELLED |= {"mwh": "MWh", "v": "V", "a": "A", "hz": "Hz", "khz": "kHz", "mhz": "MHz", "db": "dB"}
SPELLED |= {unit: unit.upper() for unit in CURRENCIES if len(unit) == 3 and unit.isascii() and unit.isalpha()}


def fields_of(model: Model, ranges: Sequence[tuple[float, float]]) -> list[dict[str, Any]] | None:
    """Return the columns of the table that a model was fitted to; None if they had no names.

    Each has a name, a kind ("number", also of numbers that the table had as texts, with the `unit` of these; "category"
    with `levels`; "date", `zoned` where times need a zone, with the strptime `form` of its texts, "" for ISO 8601), and
    `gaps`, whether null is accepted. Numbers have `low` and `high`, the ends of their range in training, and so have
    ISO 8601 dates, as texts. Longitudes have a `period` of 360 degrees.

    Parameters
    ----------
    ranges : of each input, (D, 2)
    """
    found: list[dict[str, Any]] = []
    for code, inputs in _placed(_coding(model)):
        if isinstance(code, Sphere):
            ends = zip(code.columns, (180.0, 90.0), strict=True)
            found += [{"name": n, "kind": Number.kind, "gaps": False, "low": -most, "high": most} for n, most in ends]
            found[-2]["period"] = 360.0
            continue
        levels = {"levels": list(code.levels)} if isinstance(code, Category) else {}
        dates = {"zoned": code.zoned, "form": code.form} if isinstance(code, Date) else {}
        gaps = indicator_of(code.name) in code.inputs
        kind = Number.kind if isinstance(code, Quantity) else code.kind
        limits = _limits(code, kind, ranges[inputs.start])
        unit = {"unit": SPELLED.get(code.unit, code.unit)} if isinstance(code, Quantity) and code.unit else {}
        found.append({"name": code.name, "kind": kind, "gaps": gaps, **unit, **levels, **dates, **limits})
    return found or None


def _limits(code, kind, ends) -> dict[str, Any]:
    if kind == Number.kind:
        return dict(zip(("low", "high"), ends, strict=True))
    if not isinstance(code, Date) or code.form:
        return {}
    try:
        return {"low": _date(code, ends[0]), "high": _date(code, ends[1])}
    except OverflowError:  # no dates of the calendar, where ends are estimated
        return {}


def start_of(snapshot: Snapshot) -> dict[str, Any]:
    """Return the row at which a form starts.

    Returns
    -------
    `last`: whether it is the last row absorbed. If that cannot be read again, the row is a typical one: the mean of
    each number, and the most frequent level. And `row`: its values by column name, or, if the columns had no names, the
    list of its inputs. Where dates are whole days, so is their mean.
    """
    found = last_row(snapshot)
    inputs = _typical(snapshot.model, snapshot.facts.survey.ranges) if found is None else found
    return {"last": found is not None, "row": _values(snapshot.model, inputs)}


def last_row(snapshot: Snapshot) -> np.ndarray | None:
    """Return the inputs (D,) of the last row of the partition that was absorbed last, in original units.

    None if its rows cannot be read again, or are not those that were absorbed.
    """
    if not len(snapshot.ledger):
        return None
    entry = snapshot.ledger[-1]
    try:
        ((_, rows),) = read_all(partitions_of(snapshot, [entry], {entry.key: 1.0}))
    except (BcmdistError, OSError):
        return None
    return rows.X[-1] if rows.digest == entry.digest else None


def _coding(model) -> Coding:
    return model.schema.coding or plain(model.schema.columns)


def _placed(coding) -> Iterator[tuple[Code, slice]]:
    """Yield the codes, each with the range of its inputs."""
    start = 0
    for code in coding.codes:
        yield code, slice(start, start + len(code.inputs))
        start += len(code.inputs)


def _typical(model, ranges):
    """Mean inputs (D,) in original units; a whole day of dates whose range ends at whole days."""
    scaling = model.scaling
    inputs = scaling.original_inputs(np.zeros((1, len(scaling.x_mean))))[0]
    for code, place in _placed(_coding(model)):
        if isinstance(code, Date) and ranges and all(float(end).is_integer() for end in ranges[place.start]):
            inputs[place.start] = np.round(inputs[place.start])
    return inputs


def _values(model, inputs):
    """Return inputs (D,) as a row of the table: values by column name, or a list if columns had no names."""
    placed = list(_placed(_coding(model)))
    if not placed:
        return inputs.tolist()
    found = dict[str, Any]()
    for code, place in placed:
        if isinstance(code, Sphere):
            found |= dict(zip(code.columns, (float(some[0]) for some in degrees(inputs[place][None])), strict=True))
        else:
            found[code.name] = _value(code, inputs[place])
    return found


def _value(code, inputs):
    """Return the value of a column from its inputs; None for a gap, or for a level that training lacks."""
    if indicator_of(code.name) in code.inputs and inputs[-1] > 0.5:  # also the most frequent of a typical row
        return None
    if isinstance(code, Category):
        indicators = inputs[: len(code.levels)]
        return code.levels[int(np.argmax(indicators))] if np.max(indicators) > 0.0 else None
    return _date(code, float(inputs[0])) if isinstance(code, Date) else float(inputs[0])


def _date(code, days):
    """Return UTC days as a text that the code reads: of a whole day, if possible."""
    time = (EPOCH + DAY * days).replace(microsecond=0)
    if code.form:
        return time.strftime(code.form)
    iso = time.replace(tzinfo=None).isoformat()
    if code.zoned:
        return f"{iso}Z"
    return time.date().isoformat() if days == int(days) else iso
