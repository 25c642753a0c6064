"""JSON of requests and answers, most of it numbers: read and written by pydantic's core, which takes a fifth of the
time of Python's own module, and by that where the core is too strict.
"""

import json
from typing import Any

from pydantic_core import from_json, to_json

from bcmdist.app.finite import finite


def written(value: Any) -> bytes:
    """A value as JSON; what is not finite becomes null."""
    try:
        return to_json(value, inf_nan_mode="null")
    except ValueError:  # half a surrogate pair, in a name of somebody's, has no UTF-8
        return json.dumps(finite(value), allow_nan=False, separators=(",", ":")).encode()


def read(text: bytes | bytearray) -> Any:
    """What JSON says.

    Raises
    ------
    json.JSONDecodeError, UnicodeDecodeError, RecursionError
    """
    try:
        return from_json(text)
    except ValueError:  # it may be of another encoding; else Python's module says at what character it is wrong
        return json.loads(text)
