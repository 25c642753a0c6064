"""Of which file a data set was made, by an attribute that says so."""

import hashlib
import os
from pathlib import Path
from typing import Any

from bcmdist.data.groups import open_group
from bcmdist.errors import DataNotFound

# Attribute of a data set: the file it was made of, and how.
MADE_OF = "made_of"


def origin(file) -> dict[str, str]:
    """What tells a file, or directory of files, from others, and from itself after a change."""
    return {"file": os.path.basename(os.path.abspath(file)), "stamp": _stamp(Path(file))}


def origin_of(place) -> Any:
    """What the data set at a place was made of; None where there is none."""
    try:
        return open_group(place).attrs.get(MADE_OF, {})
    except DataNotFound:
        return None


def of_one_file(one, other) -> bool:
    """Whether two data sets were made of the same file, as it was then."""
    stamps = [(origin_of(place) or {}).get("stamp") for place in (one, other)]
    return bool(stamps[0]) and stamps[0] == stamps[1]


def _stamp(path):
    """What changes when a file does: sizes and times of the files that it is; "" where there is none."""
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    if not path.exists():
        return ""
    told = [(str(one.relative_to(path)), one.stat().st_size, one.stat().st_mtime_ns) for one in files]
    return hashlib.sha256(repr(told).encode()).hexdigest()
