"""Requests as JSON: how jobs store them and services receive them.

All fields are stored, also those with default values, so that a request keeps its meaning when defaults change.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from bcmdist.api.requests import REQUESTS, Request
from bcmdist.errors import InvalidRequest
from bcmdist.learning.method_options import method_options, option_kinds
from bcmdist.learning.option_fields import fits, has_fields, hints_of, words
from bcmdist.learning.settings import Settings


def to_json(request: Request) -> dict[str, Any]:
    """Return a request as JSON: all fields by name, and its kind as `request`."""
    (name,) = (name for name, kind in REQUESTS.items() if kind is type(request))
    return {"request": name, **_written(request)}


def _written(value: Any) -> Any:
    if not is_dataclass(value):
        return value
    written = {name: _written(getattr(value, name)) for name in hints_of(type(value))}
    if isinstance(value, Settings):  # options of the method stand on the level of the fields
        kinds = option_kinds(value.expert)
        return {**written, **{one.name: getattr(value, one.name) for kind in kinds for one in fields(kind)}}
    return written


def from_json(found: Any) -> Request:
    """Return the request written by `to_json`. Missing fields have their default values.

    Raises
    ------
    InvalidRequest
        The JSON is no request: a field is unknown or has the wrong type, or a required field is missing.
    InvalidOption
        A value is invalid.
    """
    name = found.get("request") if isinstance(found, dict) else None
    if not isinstance(name, str) or name not in REQUESTS:
        raise InvalidRequest(
            f"request: expected an object whose request is one of {', '.join(REQUESTS)}, got {found!r:.80}; correct it"
        )
    values = {field: value for field, value in found.items() if field != "request"}
    request: Request = _read(REQUESTS[name], values, name)
    return request


def _read(kind: type, found: Mapping[str, Any], where: str) -> Any:
    hints = hints_of(kind)
    if kind is Settings:
        hints |= {name: option.hint for name, option in method_options(named=found.keys() - hints.keys()).items()}
    for name in found.keys() - hints.keys():
        raise InvalidRequest(
            f"request: expected fields of {where} ({', '.join(hints)}), got {name!r:.80}; leave it out, or upgrade "
            "bcmdist"
        )
    for one in fields(kind):
        if one.name in hints and one.name not in found and one.default is one.default_factory is MISSING:
            raise InvalidRequest(f"request: expected {one.name} in {where}, it is not there; add it")
    values = {}
    for name, value in found.items():
        hint = hints[name]
        if not fits(value, hint):
            raise InvalidRequest(f"request: expected {words(hint)} as {where}.{name}, got {value!r:.80}; correct it")
        _refuse_unwritable(value, f"{where}.{name}")
        values[name] = _read(hint, value, f"{where}.{name}") if has_fields(hint) else value
    return kind(**values)


def _refuse_unwritable(value: object, where: str) -> None:
    """Raise `InvalidRequest` where a string, or one in a list, contains NUL or lone surrogates: no stored name can."""
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and ("\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text)):
            raise InvalidRequest(
                f"request: expected a text of whole characters without NUL as {where}, got {text!r:.80}; correct it"
            )
