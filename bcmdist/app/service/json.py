"""JSON of requests and responses, read and written by pydantic's core.

The core takes a fifth of the time of Python's `json` on numbers, which are most of it. `json` is the fallback where the
core is too strict.
"""

import json
from typing import Any

from pydantic_core import from_json, to_json

from bcmdist.app.finite import finite


def written(value: Any) -> bytes:
    """Return a value as JSON; non-finite numbers become null."""
    try:
        return to_json(value, inf_nan_mode="null")
    except ValueError:  # an unpaired surrogate, in a name that a user chose, has no UTF-8
        return json.dumps(finite(value), allow_nan=False, separators=(",", ":")).encode()


def read(text: bytes | bytearray) -> Any:
    """Parse JSON.

    Raises
    ------
    json.JSONDecodeError, UnicodeDecodeError, RecursionError
    """
    try:
        return from_json(text)
    except ValueError:  # the encoding may be another one; if not, the error of `json` states the character position
        return json.loads(text)
