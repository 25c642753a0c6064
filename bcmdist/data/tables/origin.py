"""Origin of a data set: an attribute that identifies the file from which it was made."""

import hashlib
import os
from pathlib import Path
from typing import Any

from bcmdist.data.groups import open_group
from bcmdist.errors import DataNotFound

# Attribute of a data set: its source file, and how it was imported.
MADE_OF = "made_of"


def origin(file) -> dict[str, str]:
    """Return a name and a stamp that identify the current version of a file, or directory of files."""
    return {"file": os.path.basename(os.path.abspath(file)), "stamp": _stamp(Path(file))}


def origin_of(place) -> Any:
    """Return the origin of the data set at a place; {} if it has none, None if there is no data set."""
    try:
        return open_group(place).attrs.get(MADE_OF, {})
    except DataNotFound:
        return None


def of_one_file(one, other) -> bool:
    """Return whether two data sets were made from the same version of the same file."""
    stamps = [(origin_of(place) or {}).get("stamp") for place in (one, other)]
    return bool(stamps[0]) and stamps[0] == stamps[1]


def _stamp(path):
    """Return a hash of the names, sizes and modification times of the files; "" if there are none."""
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    if not path.exists():
        return ""
    stamps = [(str(one.relative_to(path)), one.stat().st_size, one.stat().st_mtime_ns) for one in files]
    return hashlib.sha256(repr(stamps).encode()).hexdigest()
