"""Names of what is being written. They name the process that writes, so that what a killed one has left is removed.

    data.zarr.partial-<process>-<random>     an output that is renamed when it is complete
    .tmp-<process>-<random>                  a file of a model that is linked when it is complete

A process is known as in leases: by its host, the start of that host, the namespace of its id (all three shortened to
digests), its id and its own start. Only a process of this host and namespace is known to be dead.
"""

import contextlib
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterable

from bcmdist.storage.interface import TEMPORARY
from bcmdist.storage.leases import is_dead, this_process

PARTIAL = ".partial-"
# Hexadecimal digits of what tells machines apart: hosts that share a disk must not be taken for each other.
DIGITS = {"host": 12, "boot": 8, "namespace": 8}
OWNED = re.compile(
    rf"(?:{re.escape(TEMPORARY)}|.+{re.escape(PARTIAL)})"
    + "".join(rf"(?P<{name}>[0-9a-f]{{{digits}}})-" for name, digits in DIGITS.items())
    + r"(?P<pid>\d+)-(?P<started>\d+(?:\.\d+)?)-[0-9a-f]{8}"
)


def owned(prefix: str) -> str:
    """A new name that begins so and names this process."""
    process = this_process()
    parts = [*(_short(process, name) for name in DIGITS), process["pid"], process["started"], uuid.uuid4().hex[:8]]
    return prefix + "-".join(map(str, parts))


def partial(where: str) -> str:
    """A new path beside one that is to appear; what dead processes have left in that folder is removed."""
    folder = os.path.dirname(os.path.abspath(where))
    with contextlib.suppress(OSError):  # there is none yet, or it cannot be read
        for name in abandoned(os.listdir(folder)):
            _remove(os.path.join(folder, name))
    return owned(f"{where}{PARTIAL}")


def abandoned(names: Iterable[str]) -> list[str]:
    """Those of some names whose process is dead."""
    matches = ((name, OWNED.fullmatch(name)) for name in names)
    return [name for name, match in matches if match and is_dead(_holder(match))]


def _holder(match):
    """The process that a name names, as a lease does; what differs from this process by its digest is empty."""
    process = this_process()
    same = {name: process[name] if _short(process, name) == match[name] else None for name in DIGITS}
    return same | {"pid": int(match["pid"]), "started": float(match["started"])}


def _short(process, name):
    return hashlib.sha256(process[name].encode()).hexdigest()[: DIGITS[name]]


def _remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        os.unlink(path)
