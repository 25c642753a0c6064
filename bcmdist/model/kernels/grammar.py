"""Grammar of kernel expressions: sums of products of kernels by name, each on all columns or on those in parentheses.

    matern12(lon, lat) + se(age)*linear(rooms) + periodic(hour, period=24)

A column is a name or a number (from 0), in quotes where a name contains one of , = ( ) ' ". `NAME=VALUE` sets an
option of a kernel; a value that begins with ~ is where learning starts, any other one stays.
"""

import re
from dataclasses import dataclass

from bcmdist.errors import InvalidOption

MOST_NAMES = 64  # largest number of kernels in an expression, each with its own learned parameters; arbitrary
ONE_LENGTHSCALE = "-iso"
LEARNED = "~"  # begins the value of an option that learning may change
# Parts of an expression; blanks between them do not count.
NAME = re.compile(r"\s*([^\s+*(),='\"]+)\s*")
WORD = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([^,=()'"]*[^,=()'"\s]))\s*""")
PLAIN = re.compile(r"""[^\s,=()'"](?:[^,=()'"]*[^\s,=()'"])?""")  # a column that needs no quotes


@dataclass(frozen=True)
class Factor:
    """One kernel of an expression."""

    name: str
    """name of the kernel, without -iso"""
    isotropic: bool = False
    columns: tuple[str | int, ...] | None = None
    """names or numbers of columns; None for all. A text in quotes is never a number"""
    options: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """The factor as `parsed` reads it."""
        inside = [str(one) if isinstance(one, int) else quoted(one) for one in self.columns or ()]
        inside += [f"{name}={value}" for name, value in self.options]
        name = self.name + ONE_LENGTHSCALE * self.isotropic
        return name if self.columns is None and not self.options else f"{name}({', '.join(inside)})"


Terms = tuple[tuple[Factor, ...], ...]
"""Factors of the products of a sum."""


def written(terms: Terms) -> str:
    """Expression that `parsed` reads as these terms."""
    return " + ".join("*".join(factor.text for factor in term) for term in terms)


def quoted(name: str) -> str:
    """A column name as it is written in an expression: in quotes where it would be read as something else."""
    if PLAIN.fullmatch(name) and not name.isdecimal():
        return name
    return f"'{name}'" if '"' in name else f'"{name}"'


def parsed(expression: str) -> Terms:
    """Terms of an expression; whether kernels and columns exist is not checked.

    Raises
    ------
    InvalidOption
        The expression does not follow the grammar, or has more than `MOST_NAMES` kernels.
    """
    terms: list[list[Factor]] = [[]]
    place, count = 0, 0
    while True:
        factor, place = _factor(expression, place)
        terms[-1].append(factor)
        count += 1
        if place == len(expression):
            break
        if expression[place] not in "+*":
            raise _wrong(expression, place, "+, * or the end")
        if expression[place] == "+":
            terms.append([])
        place += 1
    if count > MOST_NAMES:
        raise InvalidOption(
            f"kernel: expected a combination of at most {MOST_NAMES} kernels, got one of {count:,}; leave some out"
        )
    return tuple(map(tuple, terms))


def _factor(expression: str, place: int) -> tuple[Factor, int]:
    """The factor that begins at `place`, and where it ends."""
    found = NAME.match(expression, place)
    if found is None:
        raise _wrong(expression, place, "the name of a kernel")
    name, place = found[1], found.end()
    plain = name.removesuffix(ONE_LENGTHSCALE)
    if expression[place : place + 1] != "(":
        return Factor(plain, plain != name), place
    columns: list[str | int] = []
    options: list[tuple[str, str]] = []
    while True:
        word, place = _word(expression, place + 1)
        if expression[place : place + 1] == "=":
            value, place = _word(expression, place + 1)
            options.append((str(word), str(value)))
        else:
            columns.append(word)
        following = expression[place : place + 1]
        if following == ")":
            break
        if following != ",":
            raise _wrong(expression, place, ", or )")
    place += 1
    while place < len(expression) and expression[place].isspace():
        place += 1
    return Factor(plain, plain != name, tuple(columns) or None, tuple(options)), place


def _word(expression: str, place: int) -> tuple[str | int, int]:
    """A column, or one side of an option, that begins at `place`, and where it ends; whole numbers as int."""
    found = WORD.match(expression, place)
    if found is None:
        raise _wrong(expression, place, "a column (by name or number, in quotes where it contains , = ( ) or quotes)")
    if found[3] is not None and re.fullmatch(r"\d{1,9}", found[3], re.ASCII):
        return int(found[3]), found.end()
    return next(text for text in found.groups() if text is not None), found.end()


def _wrong(expression: str, place: int, expected: str) -> InvalidOption:
    got = f"{expression[place : place + 20]!r}" if place < len(expression) else "its end"
    return InvalidOption(
        f"kernel: expected {expected} after {expression[:place].strip()[-40:]!r}, got {got}; write it like "
        "'matern12(lon, lat) + se(age)*linear(rooms)'"
    )
