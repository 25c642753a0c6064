"""JSON request bodies: small ones are parsed on the event loop, large ones in pieces on the thread of `large`.

Other threads run between two pieces, and rows become arrays as they are parsed.

A body is an object with known field names. A value is a number or text, a list of these, rows of numbers (a list of
lists), or matrices (a list of lists of rows). Rows are counted before they are parsed. Parsing stops at the first
error.
"""

import functools
import re
from collections.abc import Callable, Container, Coroutine, Iterator
from typing import Any, TypeVar

import numpy as np
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json

from bcmdist.app.service.answers import Refused, invalid, read
from bcmdist.app.service.bodies import MOST_COLUMNS, Records, Rows
from bcmdist.app.service.large import SMALL_BYTES

PIECE_BYTES, PIECE_ITEMS, PIECE_RECORDS = 2**16, 2**12, 2**9  # parsed at once, in some milliseconds
MOST_BYTES = 2**20  # of one text, and of PIECE_ITEMS items together
FEW = 10_000  # least limit on the number of lists: covariances of a few rows are many lists
SPACE = re.compile(rb"[ \t\n\r]*+")
NAME = re.compile(rb'[ \t\n\r]*+"([^"\\]{0,80}+)"[ \t\n\r]*+:[ \t\n\r]*+')
OPENING = re.compile(rb"(?>(?:\[[ \t\n\r]*+){1,3})")
CLOSING = {depth: re.compile(rb"\][ \t\n\r]*+" * depth) for depth in (2, 3)}
# No repetition is backtracked into, so that all patterns take linear time. Those of characters are possessive, those of
# groups atomic: possessive ones of groups also take a part of a group in Python 3.11.2. An atomic group keeps a record
# of each repetition until it ends. Where their number has no limit, up to 64 (arbitrary) are therefore an atomic group
# of their own, which takes a 64th of the memory.
_REPEATED = rb"(?>(?:(?>(?:%s){1,64}))*)"
_TEXT = rb'"' + _REPEATED % rb'[^"\\]++|\\.' + rb'"'
SINGLE = re.compile(_TEXT + rb"|[^\s,\[\]{}\"]{1,1000}+")
_ITEM = rb"[^\"\[\]{},]*+(?>(?:" + _TEXT + rb"[ \t\n\r]*+)?)"
_RECORD = rb"\{" + _REPEATED % (rb"[^\"{}\[\]]++|" + _TEXT) + rb"\}[ \t\n\r]*+"
RECORDS = re.compile(rb"(?>(?:%s,[ \t\n\r]*+){1,%d})" % (_RECORD, PIECE_RECORDS))
LAST_RECORD = re.compile(_RECORD + rb"\]")
ITEMS, LAST = re.compile(rb"(?>(?:%s,){1,%d})" % (_ITEM, PIECE_ITEMS)), re.compile(_ITEM + rb"\]")
NUMBERS = TypeAdapter(Rows, config=ConfigDict(strict=True, allow_inf_nan=False))
OBJECTS = TypeAdapter(Records, config=ConfigDict(strict=True, allow_inf_nan=False))
Body = TypeVar("Body", bound=BaseModel)


def read_body(kind: type[Body], text: bytes | bytearray, *, most_rows: int) -> Body:
    """Parse a body into an instance of `kind`, with arrays in place of rows of numbers.

    Raises
    ------
    Refused
    """
    values = read_object(text, kind.model_fields, most_rows=most_rows)
    # Arrays and objects are validated as they are parsed: a small stand-in of the same kind takes the place of each.
    alike = {name: np.zeros((1,) * rows.ndim).tolist() for name, rows in values.items() if isinstance(rows, np.ndarray)}
    lists = {name: rows[:1] for name, rows in values.items() if isinstance(rows, list)}
    alike |= {name: first for name, first in lists.items() if first and isinstance(first[0], dict)}
    try:
        return kind.model_validate(values | alike).model_copy(update={name: values[name] for name in alike})
    except ValidationError as error:
        raise invalid({**one, "loc": ("body", *one["loc"])} for one in error.errors(include_input=False)) from None


def read_object(text: bytes | bytearray, names: Container[str], *, most_rows: int) -> dict[str, Any]:
    """Parse an object into values by name; rows become an array (n, D), matrices an array (n, D, D).

    Raises
    ------
    Refused
    """
    if max(text.count(b"["), text.count(b"]")) > 4 * max(most_rows, FEW):  # two tables of `most_rows` rows, doubled
        raise _too_many("body", most_rows)
    values: dict[str, Any] = {}
    place = _after(text, SPACE.match(text).end(), b"{")  # type: ignore[union-attr]
    while True:
        found = NAME.match(text, place)
        if found is None:
            raise _broken(place)
        name = found[1].decode(errors="replace")
        refuse_unknown(name, names)
        if name in values:
            raise invalid([{"loc": ("body", name), "msg": "expected once, got twice"}])
        values[name], place = _Reader(text, name, most_rows).value(found.end())
        if text[place : place + 1] == b"}":
            break
        place = _after(text, place, b",")
    if SPACE.fullmatch(text, place + 1) is None:
        raise _broken(place + 1)
    return values


def refuse_unknown(name: str, names: Container[str]) -> None:
    """Raise `Refused` if a name in a body is not a field."""
    if name not in names:
        raise invalid([{"loc": ("body", f"{name:.80}"), "msg": "Extra inputs are not permitted"}])


class _Reader:
    """Parser of one value in a text.

    A `place` is a byte offset. Parsing methods return the value and the offset of the first byte after it and spaces.
    """

    def __init__(self, text: bytes | bytearray, name: str, most_rows: int):
        self.text, self.name, self.most_rows = text, name, most_rows

    def value(self, place: int) -> tuple[Any, int]:
        opening = OPENING.match(self.text, place)
        if opening is None:
            single = SINGLE.match(self.text, place, place + MOST_BYTES)
            if single is None:
                raise _broken(place)
            return self.json(single[0], place), _skipped(self.text, single.end())
        depth = opening[0].count(b"[")
        if depth == 1:
            named = self.text[opening.end() : opening.end() + 1] == b"{"
            return self.records(opening.end()) if named else self.items(place + 1)
        closing = CLOSING[depth].search(self.text, place)
        if closing is None:
            raise _broken(place)
        return self.rows(place, closing) if depth == 2 else self.matrices(place, closing.end())

    def items(self, place: int) -> tuple[list, int]:
        """Parse a list of numbers or texts, from `place` after its opening bracket."""
        values: list[Any] = []
        while piece := ITEMS.match(self.text, place, place + MOST_BYTES):
            values += self.json(b"[" + piece[0] + b"0]", place)[:-1]
            place = piece.end()
            if len(values) > max(self.most_rows, FEW):
                raise _too_many(self.name, self.most_rows)
        last = LAST.match(self.text, place, place + MOST_BYTES)
        if last is None:
            raise _broken(place)
        final = self.json(b"[" + last[0], place)
        if values and not final:
            raise _broken(place)
        return values + final, _skipped(self.text, last.end())

    def records(self, place: int) -> tuple[list, int]:
        """Parse a list of objects of numbers, texts and nulls, from `place` after its opening bracket."""
        values: list[Any] = []
        while piece := RECORDS.match(self.text, place, place + MOST_BYTES):
            values += self.objects(piece[0].rstrip()[:-1], place, len(values))
            place = piece.end()
            if len(values) > self.most_rows:
                raise _too_many(self.name, self.most_rows)
        last = LAST_RECORD.match(self.text, place, place + MOST_BYTES)
        if last is None:
            raise _broken(place)
        return values + self.objects(last[0][:-1], place, len(values)), _skipped(self.text, last.end())

    def objects(self, piece: bytes, place: int, done: int) -> list:
        """Parse some objects, which begin at `place` and follow `done` others."""
        try:
            return OBJECTS.validate_json(b"[" + piece + b"]")
        except ValidationError as error:
            raise self.wrong(error, place, done) from None

    def rows(self, place: int, closing: re.Match[bytes]) -> tuple[np.ndarray, int]:
        """Parse rows of numbers (n, D) that end with the match `closing`."""
        count, done = self.text.count(b"[", place, closing.end()) - 1, 0
        numbers = np.empty((0, 0))
        for rows in self.pieces(place, closing.start()):
            width = numbers.shape[1] if done else len(rows[0])
            odd = next((k for k, row in enumerate(rows) if len(row) != width), None)
            if odd is not None:
                found = f"got {len(rows[odd])} in row {done + odd}"
                text = f"{self.name}: expected {width} numbers in each row, {found}; correct it"
                raise Refused(422, "InvalidData", text)
            if not done:
                numbers = np.empty((count, width))
            numbers[done : done + len(rows)] = rows
            done += len(rows)
        return numbers, closing.end()

    def pieces(self, place: int, last: int) -> Iterator[list[list[float]]]:
        """Yield some rows at a time; `last` is the offset of the bracket that closes the last row."""
        place, done = place + 1, 0
        while True:
            end = self.text.find(b"]", min(place + PIECE_BYTES, last), last + 1)
            if self.text.count(b",", place, end) > MOST_COLUMNS + PIECE_BYTES:
                text = f"expected at most {MOST_COLUMNS} numbers in each row, got more"
                raise invalid([{"loc": ("body", self.name), "msg": text}])
            try:
                rows = NUMBERS.validate_json(b"[" + self.text[place : end + 1] + b"]")
            except ValidationError as error:
                raise self.wrong(error, place, done) from None
            done += len(rows)
            yield rows
            if end == last:
                return
            place = _after(self.text, _skipped(self.text, end + 1), b",")

    def matrices(self, place: int, end: int) -> tuple[np.ndarray, int]:
        """Parse a list of equally shaped matrices (n, D, D) that ends before `end`."""
        found = []
        place = _after(self.text, place, b"[")
        while True:
            closing = CLOSING[2].search(self.text, place, end)
            if self.text[place : place + 1] != b"[" or closing is None:
                raise _broken(place)
            # At the end of the whole list, the match may include one more space or bracket.
            matrix, place = self.rows(place, closing)
            found.append(matrix)
            if self.text[place : place + 1] == b"]":
                break
            place = _skipped(self.text, _after(self.text, place, b","))
        odd = next((one for one in found if one.shape != found[0].shape), None)
        if odd is not None:
            text = f"{self.name}: expected matrices of {found[0].shape}, got one of {odd.shape}; correct it"
            raise Refused(422, "InvalidData", text)
        return np.stack(found), _skipped(self.text, place + 1)

    def json(self, piece: bytes, place: int) -> Any:
        """Parse a piece that begins at `place`."""
        try:
            return from_json(piece)
        except ValueError:
            raise _broken(place) from None

    def wrong(self, error: ValidationError, place: int, done: int) -> Refused:
        """Return the error for an invalid piece that begins at `place` and follows `done` rows."""
        one = error.errors(include_url=False, include_input=False)[0]
        if one["type"] == "json_invalid":
            return _broken(place)
        loc = (int(one["loc"][0]) + done, *one["loc"][1:]) if one["loc"] else ()
        return invalid([{**one, "loc": ("body", self.name, *loc)}])


def _skipped(text, place):
    """Return the offset after spaces, if there are any at `place`."""
    spaces = SPACE.match(text, place)
    assert spaces, "none are spaces too"
    return spaces.end()


def _after(text, place, mark):
    """Return the offset after the byte `mark` and spaces; raise `Refused` if another byte is at `place`."""
    if text[place : place + 1] != mark:
        raise _broken(place)
    return _skipped(text, place + 1)


def _too_many(name, most):
    text = f"{name}: expected at most {most} rows in a request, got more; send them in several"
    return Refused(413, "TooManyRows", text)


def _broken(place):
    return invalid([{"loc": ("body", place), "msg": "JSON decode error"}])


class _Request(Request):
    """A request whose JSON body is parsed as a `kind`."""

    def __init__(self, request: Request, kind: type[BaseModel] | None):
        super().__init__(request.scope, request.receive)
        self._kind = kind
        self._whole: bytearray | None = None

    async def body(self) -> bytearray:  # type: ignore[override]
        """Return the whole body, in a buffer that `json` can empty after parsing while others still refer to it."""
        if self._whole is None:
            self._whole = bytearray()
            async for piece in self.stream():
                self._whole += piece
        return self._whole

    async def json(self) -> Any:
        body = await self.body()
        kind = self._kind if self._kind is not None and self._kind.model_config.get("extra") == "forbid" else None
        if len(body) > SMALL_BYTES:
            if kind is None:
                text = f"body: expected at most {SMALL_BYTES} bytes of such a request, got {len(body)}; shorten it"
                raise Refused(413, "TooLarge", text)
            most_rows = self.app.state.service.limits.rows
            found = await self.scope["large"].run(functools.partial(read_body, kind, body, most_rows=most_rows))
            body.clear()
            return found
        value = read(body)
        if kind is not None and isinstance(value, dict):
            for name in value:
                refuse_unknown(name, kind.model_fields)
        return value


class JSONRoute(APIRoute):
    """A route for requests with a JSON body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        kind: Any = self.body_field.field_info.annotation if self.body_field else None

        async def handle_json(request: Request) -> Response:
            return await handle(_Request(request, kind))

        return handle_json
