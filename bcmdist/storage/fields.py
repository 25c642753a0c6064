"""Checks of stored content when it is read: JSON documents decoded into declared types.

Checksums detect damage, but not invalid content that was stored with a correct checksum, by hand or by other software.
Such content is refused here, with an error that names the blob or record and the field. Types are declared as
`msgspec.Struct` or dataclass with the annotations below; fields that a type does not declare are ignored.
"""

import contextlib
import copy
import json
import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from bcmdist.errors import CommitRefused, ModelDamaged

RESTORE = "; restore the directory from a copy"
LONGEST_SHOWN = 40

# The bounds exclude NaN and infinity, which Python's JSON parser accepts, and integers that no 64-bit array holds.
_LARGEST = sys.float_info.max
Number = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
Positive = Annotated[float, Meta(gt=0, le=_LARGEST)]
NotNegative = Annotated[float, Meta(ge=0, le=_LARGEST)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
CountFromOne = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Blob = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
"""SHA-256 in hexadecimal, the name of a blob"""

_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "object": "an object",
    "array": "a list",
    "bool": "true or false",
}


def converted(kind: Any, document: Any, name: str = "") -> Any:
    """Convert a parsed JSON document to a type.

    Parameters
    ----------
    kind : a type that msgspec converts to
    name : name of the document where it is a single field of a record, for the error

    Raises
    ------
    TypeError
        A field is missing, of another type or out of bounds; the error names it.
    """
    try:
        return msgspec.convert(document, kind)
    except (msgspec.ValidationError, UnicodeError) as error:
        expected, found = _mismatch(kind, document, str(error), name)
        raise TypeError(f"expected {expected}, found {found}") from error


def decode(kind: Any, document: Any, where: str, name: str = "") -> Any:
    """Convert a stored document as `converted` does.

    Raises
    ------
    ModelDamaged
        With the place `where`.
    """
    try:
        return converted(kind, document, name)
    except TypeError as error:
        raise ModelDamaged(f"{where}: {error}{RESTORE}") from error


def parse(text: bytes, where: str) -> Any:
    """Parse a JSON document.

    Raises
    ------
    ModelDamaged
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(where, "JSON", f"something else ({first_line(error)})") from error


def _mismatch(kind, document, error, name):
    """Return what was expected, and what was found, from the text of msgspec's error."""
    text, _, path = error.partition(" - at `$")
    whole = copy.deepcopy(document) if "[...]" in path else document
    value, place = whole, name
    for step in re.findall(r"\.\w+|\[\d+\]|\[\.\.\.\]", path):
        if step == "[...]":  # some key of an object
            key = _wrong_key(kind, whole, value, error)
            value, step = value[key], f".{key}"
        else:
            value = value[int(step[1:-1]) if step[0] == "[" else step[1:]]
        place += step
    place = place.lstrip(".")
    if missing := re.search("missing required field `(.*)`", text):
        return f"a field {missing[1]}" + (f" in {place}" if place else ""), "nothing"
    text = re.sub("Invalid enum value .*", "a known name", text)
    text = re.sub("`str` matching regex .*", "the hash of a blob", text)  # the only pattern
    words = re.sub("`([^`]*)`", _in_words, text.removeprefix("Expected ").partition(", got ")[0])
    return words + (f" as {place}" if place else ""), shown(value)


def _wrong_key(kind, whole, part, error):
    """Return the key of an object `part` of a document whose value gives the error, and leave only this key."""
    for key, value in list(part.items()):
        part.clear()
        part[key] = value
        try:
            msgspec.convert(whole, kind)
        except (msgspec.ValidationError, UnicodeError) as found:
            if str(found) == error:
                break
    return key


def _in_words(quoted):
    return " or ".join(_TYPES.get(name, name) for name in quoted[1].split(" | "))


def shown(value: Any) -> str:
    """Return the `repr` of a value, shortened."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def damaged(where: str, expected: str, found: str) -> ModelDamaged:
    """Return the error for invalid content."""
    return ModelDamaged(f"{where}: expected {expected}, found {found}{RESTORE}")


@contextlib.contextmanager
def read_back(where: str) -> Iterator[None]:
    """Context for a trial reading of content that is about to be stored.

    Raises
    ------
    CommitRefused
        A reader would refuse the content.
    """
    try:
        yield
    except (ModelDamaged, TypeError, ValueError, OverflowError) as error:  # the last three: a value cannot be stored
        reason = str(error).removesuffix(RESTORE)
        if not isinstance(error, ModelDamaged):
            reason = f"expected finite numbers and texts, got another value: {reason}"
        named = "" if reason.startswith(where) else f"{where}: "
        raise CommitRefused(
            f"{named}{reason}; nothing was committed: give options other values, or report this with the command"
        ) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, cut to 80 characters, or its class."""
    return (str(error).splitlines() or [type(error).__name__])[0][:80]
