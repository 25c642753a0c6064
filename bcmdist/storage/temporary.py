"""Unfinished files and temporary directories, which do not outlive the process that made them.

Names of unfinished files identify the writing process, so that files of killed processes can be removed:

    data.zarr.partial-<process>-<random>     an output, renamed when it is complete
    .tmp-<process>-<random>                  a file of a model, linked to its name when it is complete

A process is identified as in leases: by its host, the host's boot, the namespace of process ids (all three as shortened
digests), its process id and its start. Only a process of this host can be found dead: one of an earlier boot, or one of
this boot and namespace.
"""

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Iterable

from bcmdist.storage.interface import TEMPORARY
from bcmdist.storage.leases import is_dead, this_process

PARTIAL = ".partial-"
# Hexadecimal digits of each digest: enough that hosts that share a disk are not confused.
DIGITS = {"host": 12, "boot": 8, "namespace": 8}
OWNED = re.compile(
    rf"(?:{re.escape(TEMPORARY)}|.+{re.escape(PARTIAL)})"
    + "".join(rf"(?P<{name}>[0-9a-f]{{{digits}}})-" for name, digits in DIGITS.items())
    + r"(?P<pid>\d+)-(?P<started>\d+(?:\.\d+)?)-[0-9a-f]{8}"
)


def owned(prefix: str) -> str:
    """Return a new name with this prefix that identifies this process."""
    process = this_process()
    parts = [*(_short(process, name) for name in DIGITS), process["pid"], process["started"], uuid.uuid4().hex[:8]]
    return prefix + "-".join(map(str, parts))


def partial(where: str) -> str:
    """Return a new path for writing the output `where`; remove unfinished files of dead processes from its folder."""
    folder = os.path.dirname(os.path.abspath(where))
    with contextlib.suppress(OSError):  # the folder does not exist yet, or cannot be read
        for name in abandoned(os.listdir(folder)):
            _remove(os.path.join(folder, name))
    return owned(f"{where}{PARTIAL}")


def abandoned(names: Iterable[str]) -> list[str]:
    """Return the names whose process is dead."""
    matches = ((name, OWNED.fullmatch(name)) for name in names)
    return [name for name, match in matches if match and is_dead(_holder(match))]


def _holder(match):
    """Return the process in a name, in the form of a lease; host, boot and namespace are None unless they are ours."""
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


class Scratch:
    """A temporary directory that exists as long as the process that made it holds a reference to this object."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="bcmdist-")
        weakref.finalize(self, _remove_own, self.path, os.getpid())


def _remove_own(path, maker):
    """Remove a directory, but not in a forked process: the process that made the directory may still use it."""
    if os.getpid() == maker:
        shutil.rmtree(path, ignore_errors=True)
