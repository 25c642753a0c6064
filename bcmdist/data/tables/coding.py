"""Coding: how the columns of a table become numeric inputs, reproducibly for later tables.

    soil   day          age            soil=clay  soil=loam  day      age   age missing
    clay   2026-01-02   31      ->     1          0          20455.0  31.0  0
    loam   2026-01-03                  0          1          20456.0  40.2  1

A code describes which inputs one column of the table becomes, or two where they are longitude and latitude, and
computes them. A `Coding` holds the codes of all columns, in order. It is made in a first pass over a table (`look`) and
stored as JSON with the data set and the model; from then on it is a pure function of columns.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec
import numpy as np
from msgspec import Meta

from bcmdist.data.tables.column import NUMBERS, TEXTS, Column, as_texts, refuse_kind
from bcmdist.data.tables.dates import days, turns
from bcmdist.data.tables.quantities import Form
from bcmdist.data.tables.sphere import Sphere
from bcmdist.data.values import LARGEST, as_float
from bcmdist.errors import DataDamaged, InvalidData, InvalidDtype
from bcmdist.storage.fields import converted

_Mean = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]


class Code(Protocol):
    """Maps columns of a table, mostly one, to inputs. Implementations are frozen dataclasses of JSON values."""

    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """Name of the column; of several, their names in words."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, (k,)."""

    @property
    def numbers(self) -> Callable[..., np.ndarray]:
        """Method that returns the inputs (n, k) of a piece of a table; nan for missing values that are not filled.

        Its arguments are the `Column` (several, in the order of `columns`), the name of the table and, by name, the
        number `start` of the first row, for errors, and the treatment `unseen` of unknown categories: "error", "other".
        """

    def describe(self) -> str:
        """Describe the code in words."""


@dataclass(frozen=True)
class Number:
    """Numbers, unchanged. If training data had gaps, gaps are filled with the mean and marked by an indicator input."""

    kind: ClassVar[str] = "number"
    name: str
    mean: _Mean | None = None
    """fills gaps; None: gaps stay nan"""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def inputs(self) -> tuple[str, ...]:
        return _with_indicator((self.name,), self.name, self.mean is not None)

    def numbers(self, column, where, *, start=0, unseen="error") -> np.ndarray:
        if column.kind != NUMBERS:
            refuse_kind(column, where, "numbers", start)
        values = as_float(column.values, f"{where}: {column.name!r}", start=start)
        if len(values) and not (values.min() >= -LARGEST and values.max() <= LARGEST):  # or nan, as gaps are
            _refuse_infinite(values, column.name, where, start)
        return values[:, None] if self.mean is None else _filled(values[:, None], np.isnan(values), self.mean)

    def describe(self) -> str:
        return "numbers" + _gaps_described(self.mean)


@dataclass(frozen=True)
class Category:
    """One-hot inputs: one input per level, 1 in rows of that level, so that any two levels are sqrt(2) apart. A gap is
    a level too, marked by the indicator. An unknown level is at the same distance from each known level as these are
    from each other: all its K inputs are a = (1 - sqrt(1 + K)) / K, which solves K a^2 - 2 a + 1 = 2."""

    kind: ClassVar[str] = "category"
    name: str
    levels: tuple[str, ...]
    """known values as texts, sorted"""
    gaps: bool = False
    """whether gaps have an indicator input; otherwise they stay nan"""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def unseen(self) -> float:
        """Value of each of the inputs for an unknown level."""
        return float((1.0 - np.sqrt(1.0 + len(self.inputs))) / len(self.inputs))

    @property
    def inputs(self) -> tuple[str, ...]:
        return _with_indicator(tuple(f"{self.name}={level}" for level in self.levels), self.name, self.gaps)

    def numbers(self, column, where, *, start=0, unseen="error") -> np.ndarray:
        texts = as_texts(column)
        place = {level: k for k, level in enumerate(self.levels)}
        places = np.array([place.get(text, -1) for text in texts.tolist()], dtype=int)
        strange = np.flatnonzero((places < 0) & ~column.gaps)
        if len(strange) and unseen == "error":
            shown = ", ".join(map(repr, self.levels[:8])) + ", ..." * (len(self.levels) > 8)
            raise InvalidData(
                f"{where}: expected a level of training in {self.name!r} ({shown}), got {texts[strange[0]]!r} at row "
                f"{start + strange[0]} ({len(strange)} such rows); correct it, or fit again with such rows, or without "
                "--strict and --unseen error, so that it is taken for a random one of the known levels"
            )
        found = (places[:, None] == np.arange(len(self.levels))).astype(float)
        found = _filled(found, column.gaps, 0.0 if self.gaps else None)
        found[strange] = self.unseen
        return found

    def describe(self) -> str:
        return f"category of {len(self.levels)} levels" + (", gaps indicated" if self.gaps else "")


@dataclass(frozen=True)
class Date:
    """UTC days since 1970, and optionally the phase within the day, week or year as sine and cosine."""

    kind: ClassVar[str] = "date"
    name: str
    zoned: bool = False
    """whether times have a time zone; otherwise they are taken as UTC"""
    form: str = ""
    """strptime format of texts; "" for ISO 8601"""
    cycles: tuple[Literal["day", "week", "year"], ...] = ()
    mean: _Mean | None = None
    """days that fill gaps; None: gaps stay nan"""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def inputs(self) -> tuple[str, ...]:
        circular = [f"{self.name}:{cycle}_{part}" for cycle in self.cycles for part in ("sin", "cos")]
        return _with_indicator((self.name, *circular), self.name, self.mean is not None)

    def numbers(self, column, where, *, start=0, unseen="error") -> np.ndarray:
        if column.kind == NUMBERS and not column.gaps.all():
            refuse_kind(column, where, "dates", start)
        found = days(column, where, form=self.form, zoned=self.zoned, start=start)
        circular = [turns(found, cycle) for cycle in self.cycles]
        filled = found if self.mean is None else np.where(np.isnan(found), self.mean, found)
        return _filled(np.column_stack([filled, *circular]), np.isnan(found), 0.0 if self.mean is not None else None)

    def describe(self) -> str:
        zone = "UTC days of times with a zone" if self.zoned else "days of times without a zone, taken for UTC"
        return zone + "".join(f", {cycle} as a circle" for cycle in self.cycles) + _gaps_described(self.mean)


@dataclass(frozen=True)
class Quantity:
    """Texts of numbers with a unit, thousands separators or a decimal comma (`quantities`); also plain numbers."""

    kind: ClassVar[str] = "quantity"
    name: str
    unit: str = ""
    decimal: Literal[".", ","] = "."
    mean: _Mean | None = None
    """fills gaps; None: gaps stay nan"""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def inputs(self) -> tuple[str, ...]:
        return _with_indicator((self.name,), self.name, self.mean is not None)

    def numbers(self, column, where, *, start=0, unseen="error") -> np.ndarray:
        if column.kind == TEXTS:
            form = Form(self.unit, self.decimal)
            column = replace(column, values=numbers_of_texts(column, form, where, start=start), kind=NUMBERS)
        return Number(self.name, self.mean).numbers(column, where, start=start)

    def describe(self) -> str:
        unit = f" in {self.unit}" if self.unit else ""
        return f"numbers as texts{unit}, decimal mark {self.decimal!r}" + _gaps_described(self.mean)


def numbers_of_texts(column: Column, form: Form, where, *, start=0) -> np.ndarray:
    """Return the numbers in texts (n,), nan for gaps and marks of gaps.

    Raises
    ------
    InvalidDtype
        A text is no number of the form.
    """
    numbers: dict[str, float] = {}
    for row, text in enumerate(column.values.tolist()):
        if text in numbers:
            continue
        try:
            numbers[text] = form.number(text)
        except ValueError:
            unit = f" in {form.unit}" if form.unit else ""
            raise InvalidDtype(
                f"{where}: expected numbers{unit} with the decimal mark {form.decimal!r} in {column.name!r}, got "
                f"{text!r:.80} at row {start + row}; write it in the same way"
            ) from None
    return np.array([numbers[text] for text in column.values.tolist()], dtype=float)


CODES: dict[str, type] = {code.kind: code for code in (Number, Category, Date, Quantity, Sphere)}


OUTPUT = "output"  # role of the category whose levels are the outputs of a model


@dataclass(frozen=True)
class Coding:
    """Codes of the input columns, in order, and the options needed to read such a table again."""

    codes: tuple[Code, ...]
    missing: Literal["error", "drop", "indicate"] = "error"
    """rows with gaps: refused, left out, or filled and marked by an indicator"""
    unseen: Literal["error", "other"] = "error"
    """unknown categories: refused, or coded as a level different from all known ones"""
    roles: tuple[tuple[str, str], ...] = ()
    """columns by role: ("y", "price"), ("weight", "w"), ("output", "metal")"""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the table."""
        return tuple(name for code in self.codes for name in code.columns)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, (D,)."""
        return tuple(name for code in self.codes for name in code.inputs)

    @property
    def groups(self) -> tuple[int, ...]:
        """For each input, the first input that shares its lengthscale, (D,): the inputs of a category share one.

        Those of a point on a sphere do whatever the data say, as a number below 0 shows: -1 - k, where k is the first
        of the three.
        """
        found: list[int] = []
        for code in self.codes:
            first, count = len(found), len(code.inputs)
            of_kind = {Category.kind: [first] * count, Sphere.kind: [-1 - first] * count}
            found += of_kind.get(code.kind, range(first, first + count))
        return tuple(found)

    @property
    def points(self) -> tuple[tuple[int, Sphere], ...]:
        """The points on a sphere, each with the number of its first input."""
        starts = accumulate((len(code.inputs) for code in self.codes), initial=0)
        return tuple((k, code) for k, code in zip(starts, self.codes, strict=False) if isinstance(code, Sphere))

    @property
    def indicators(self) -> tuple[str, ...]:
        """Names of the inputs that mark gaps."""
        marks = [(code.inputs[-1], indicator_of(code.name)) for code in self.codes]
        return tuple(name for name, indicator in marks if name == indicator)

    @property
    def texts(self) -> tuple[str, ...]:
        """Names of the columns that are read as texts, even if they look like numbers."""
        return tuple(code.name for code in self.codes if code.kind in (Category.kind, Quantity.kind))

    def numbers(self, columns: Mapping[str, Column], where, *, start=0, unseen=None) -> np.ndarray:
        """Return the inputs (n, D) of a piece of a table whose first row is `start`; nan where gaps are not filled.

        Raises
        ------
        InvalidData, InvalidDtype
        """
        how = {"start": start, "unseen": unseen or self.unseen}
        self._refuse_other_outputs(columns, where, start)
        found = [code.numbers(*(columns[name] for name in code.columns), where, **how) for code in self.codes]
        return found[0] if len(found) == 1 else np.concatenate(found, axis=1)

    def _refuse_other_outputs(self, columns, where, start):
        """Raise `InvalidData` at a row whose output training lacks, or that names none."""
        name = dict(self.roles).get(OUTPUT)
        code = next((one for one in self.codes if one.name == name), None)
        if not isinstance(code, Category):
            return
        column, texts = columns[code.name], as_texts(columns[code.name])
        odd = np.flatnonzero(column.gaps | ~np.isin(texts, code.levels))
        if len(odd):
            got = "none" if column.gaps[odd[0]] else repr(str(texts[odd[0]]))
            raise InvalidData(
                f"{where}: expected an output that the model was fitted to in each row of {name!r} "
                f"({', '.join(map(repr, code.levels))}), got {got:.80} at row {start + odd[0]} ({len(odd)} such rows); "
                "leave these rows out, or fit a new model to data with this output"
            )

    def unknown_levels(self, X: np.ndarray) -> dict[str, int]:
        """Return the number of rows with a level that training lacks, by column, of coded inputs X (n, D)."""
        first, found = 0, {}
        for code in self.codes:
            if isinstance(code, Category) and (count := int(np.sum(np.isclose(X[:, first], code.unseen, atol=0.0)))):
                found[code.name] = count
            first += len(code.inputs)
        return found

    def descriptions(self) -> dict[str, str]:
        """Describe the columns that are not plain numbers in words, by name."""
        return {code.name: code.describe() for code in self.codes if code != Number(code.name)}

    def to_json(self) -> dict:
        """Return the coding as JSON, for `from_json`."""
        codes = [{"kind": code.kind} | _plain(asdict(code)) for code in self.codes]  # type: ignore[call-overload]
        return {"columns": codes, "missing": self.missing, "unseen": self.unseen, "roles": dict(self.roles)}


def from_json(found: Any, where) -> Coding:
    """Read a coding written by `to_json`.

    Raises
    ------
    DataDamaged
        It is not a valid coding.
    """
    try:
        stored = converted(_Stored, found)
        codes = tuple(converted(CODES[one["kind"]], one) for one in stored.columns)
    except (KeyError, TypeError) as error:
        raise DataDamaged(
            f"{where}: expected what its columns were coded by, got {found!r:.80} ({error}); restore it from a copy"
        ) from error
    return Coding(codes, stored.missing, stored.unseen, tuple(stored.roles.items()))


class _Stored(msgspec.Struct):
    columns: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    missing: Literal["error", "drop", "indicate"]
    unseen: Literal["error", "other"]
    roles: dict[str, str]


def unknown_levels_described(name: str, count: int) -> str:
    """Describe what is made of levels that training lacks."""
    rows = "1 row is" if count == 1 else f"{count} rows are"
    levels = "the level" if count == 1 else "levels"
    return f"{levels} of {name!r} in {rows} not in the training data: taken for random ones of those that are"


def plain(columns) -> Coding:
    """Return a coding in which all columns are plain numbers."""
    return Coding(tuple(Number(name) for name in columns))


def _plain(fields):
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


def indicator_of(name: str) -> str:
    """Name of the input that marks gaps in a column."""
    return f"{name} missing"


def _with_indicator(inputs, name, indicated):
    return (*inputs, indicator_of(name)) if indicated else inputs


def _gaps_described(mean):
    return "" if mean is None else f", gaps filled with {mean:.6g} and indicated"


def _filled(values, gaps, filling):
    """Return values (n, k) with gaps left as nan, or filled and followed by an indicator column, (n, k + 1)."""
    if filling is None:
        return np.where(gaps[:, None], np.nan, values) if gaps.any() else values
    return np.column_stack([np.where(np.isnan(values), filling, values), gaps])


def _refuse_infinite(values, name, where, start):
    bad = np.flatnonzero((values > LARGEST) | (values < -LARGEST))
    if len(bad):
        raise InvalidData(
            f"{where}: expected a finite number (up to {LARGEST:g}) in each row of {name!r}, got {values[bad[0]]} at "
            f"row {start + bad[0]} ({len(bad)} such values); fill or drop these rows"
        )
