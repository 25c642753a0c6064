"""Numbers as people write them: with thousands separators, decimal commas, units, currencies, and marks for gaps.

    "€ 1,200.50" -> 1200.5      "1.234,5 kg" -> 1234.5      "12 %" -> 12      "n/a", "?", "-" -> missing

A column is read so only where all its texts are such numbers, in one unit and with one decimal mark. Texts of plain
digits only stay texts, as do numbers with leading zeros: they may be codes.
"""

import re
from dataclasses import dataclass, field
from typing import Literal

# fmt: off
GAPS = frozenset(
    [
        "-", "--", "---", "?", "??", ".", "..", "...", "n/a", "#n/a", "na", "n.a.", "n.a", "k.a.", "nan", "null",
        "none", "nil", "missing", "unknown", "unbekannt", "#value!", "#ref!", "#div/0!", "\u2013",
    ]
)
CURRENCIES = frozenset(
    [
        "€", "$", "£", "¥", "eur", "usd", "gbp", "chf", "fr.", "sfr.", "jpy", "cny", "sek", "nok", "dkk", "pln",
        "zł",
    ]
)
UNITS = CURRENCIES | frozenset(
    [
        "%", "‰", "m", "m2", "m²", "m3", "m³", "qm", "sqm", "km", "km2", "km²", "cm", "mm", "ha", "ft", "sqft", "in",
        "mi", "g", "kg", "mg", "t", "lb", "lbs", "oz", "l", "ml", "s", "sec", "min", "h", "hrs", "hours", "d",
        "days", "years", "yrs", "months", "°c", "°f", "°", "k", "pa", "hpa", "kpa", "bar", "mbar", "w", "kw", "mw",
        "kwh", "mwh", "v", "mv", "a", "ma", "hz", "khz", "mhz", "ppm", "ppb", "mg/l", "µg/m³", "ug/m3", "mph",
        "km/h", "m/s", "rpm", "db", "pcs", "rooms",
    ]
)
# fmt: on
_BEFORE, _AFTER = r"(?P<before>[^\d+\-.,]{0,5}?)", r"(?P<after>[^\d\s.,'+\-][^\d,]{0,8}[23]?)?"
_AROUND = re.compile(rf"{_BEFORE}\s*(?P<number>[+-]?\d[\d.,' \u00a0\u202f]*?)\s*{_AFTER}")
_EXPONENT = re.compile(r"[+-]?\d+(\.\d+)?[eE][+-]?\d+")
# A number with each decimal mark: digits in groups of three or without groups.
_FORMS = {
    ".": re.compile(r"[+-]?(\d{1,3}(?P<group>[,' \u00a0\u202f])\d{3}((?P=group)\d{3})*|\d+)(\.\d+)?"),
    ",": re.compile(r"[+-]?(\d{1,3}(?P<group>[.' \u00a0\u202f])\d{3}((?P=group)\d{3})*|\d+)(,\d+)?"),
}


@dataclass(frozen=True)
class Form:
    """How the numbers of a column are written."""

    unit: str = ""
    """what stands before or behind them"""
    decimal: Literal[".", ","] = "."
    """decimal mark"""

    def number(self, text: str) -> float:
        """Return the number in a text, nan for a mark of a gap; raise `ValueError` for other texts."""
        if is_gap(text):
            return float("nan")
        number, unit = split(text)
        if unit not in ("", self.unit) or (found := value(number, self.decimal)) is None:
            raise ValueError(text)
        return found


def is_gap(text: str) -> bool:
    """Return whether a text marks a missing number."""
    return text == "" or text.casefold() in GAPS


def split(text: str) -> tuple[str, str]:
    """Return the number in a text, as it is written, and its unit; ("", "") for other texts."""
    if _EXPONENT.fullmatch(text):
        return text, ""
    found = _AROUND.fullmatch(text)
    if found is None:
        return "", ""
    before, after = found["before"].strip().casefold(), (found["after"] or "").strip().casefold()
    if (before and before not in CURRENCIES) or (after and after not in UNITS) or (before and after):
        return "", ""
    return found["number"], before or after


def value(number: str, decimal: str) -> float | None:
    """Return a number that is written with a decimal mark; None if it is not written so."""
    if decimal == "." and _EXPONENT.fullmatch(number):
        return float(number)
    if not _FORMS[decimal].fullmatch(number):
        return None
    digits = re.sub(rf"[^\d+\-{re.escape(decimal)}]", "", number).replace(",", ".")
    whole = digits.lstrip("+-")
    return None if len(whole) > 1 and whole[0] == "0" and whole[1] != "." else float(digits)


@dataclass
class Quantities:
    """What the texts of a column say as numbers; `see` adds a text and how often it occurs."""

    units: set[str] = field(default_factory=set)
    totals: dict[Literal[".", ","], float | None] = field(default_factory=lambda: {".": 0.0, ",": 0.0})
    """sum of the numbers by decimal mark; None where a text is no number with this mark"""
    gaps: int = 0
    """texts that mark missing numbers"""
    read: int = 0
    written: bool = False
    """whether a text is more than plain digits and a decimal point"""
    example: str = ""
    """the first such text"""

    def see(self, text: str, count: int) -> None:
        """Add a text that occurs `count` times."""
        if not any(total is not None for total in self.totals.values()):
            return
        if is_gap(text):
            self.gaps += count
            return
        number, unit = split(text)
        self.units |= {unit} - {""}
        self.read += count
        for decimal, total in self.totals.items():
            found = value(number, decimal) if number else None
            self.totals[decimal] = None if found is None or total is None else total + count * found
        if unit or not re.fullmatch(r"[+-]?\d+(\.\d+)?", number):
            self.written, self.example = True, self.example or text

    def form(self) -> Form | None:
        """Return how all texts are written as numbers; None if they are not, or are plain digits."""
        if len(self.units) > 1 or not self.read or not (self.written or self.gaps):
            return None
        decimal = next((mark for mark, total in self.totals.items() if total is not None), None)
        return None if decimal is None else Form(next(iter(self.units), ""), decimal)

    def total(self, form: Form) -> float:
        """Return the sum of the numbers."""
        return self.totals[form.decimal] or 0.0
