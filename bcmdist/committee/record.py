"""Records of declared types, the parts of the facts of a fit, and their form as JSON."""

from typing import Any

import msgspec


def json_values(value: Any) -> Any:
    """Return a value with records as dicts and numpy's numbers as Python's."""
    return msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=lambda number: number.item())


class Record(msgspec.Struct, frozen=True):
    """A record whose fields have declared types; decoded by `bcmdist.storage.fields.decode`."""

    def changed(self, **values: Any) -> Any:
        """A copy with the given fields replaced."""
        return msgspec.structs.replace(self, **values)
