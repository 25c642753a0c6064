"""Cache of objective evaluations on disk, from which an interrupted learning run resumes.

    FILE        one JSON object per line: arguments, value (null if the evaluation failed), gradient

Every evaluation is appended before it is used. A restarted run requests the same evaluations in the same order, because
optimisers are deterministic, and reads the evaluations of the first run without touching the data. Numbers are written
with all their digits. If the process dies, at most the line being written is lost, and if the machine does, those of
about the last second (`SYNC_SECONDS`); an incomplete line is skipped. Two runs may share a file: each appends lines
that both can use.
"""

import hashlib
import json
import math
import os
import time
from pathlib import Path

import numpy as np

from bcmdist.errors import InvalidOption
from bcmdist.learning.evidence.objectives import EvidenceObjective
from bcmdist.model.model import described
from bcmdist.storage.disk import open_file, read_file, sync_directory

# Time between two syncs of the file: one takes as long as the evaluation of a few hundred rows.
SYNC_SECONDS = 1.0


class CachedObjective:
    """An objective that stores its evaluations in a file, and computes each only once.

    Parameters
    ----------
    objective : its `identity` distinguishes evaluations of different data, partitions or query points, so that
        these may change between evaluations, and one file may serve several objectives
    url : path of the file, which is created if missing
    """

    def __init__(self, objective: EvidenceObjective, url):
        if "://" in str(url) or not str(url):
            raise InvalidOption(f"learning log: expected a path on a local disk, got {str(url)!r}; give one")
        self.objective = objective
        self.path = Path(os.path.abspath(url))
        self.computed = 0
        """evaluations that were not in the file"""
        text = read_file(self.path) if os.path.lexists(self.path) else b""
        self._torn = bool(text) and not text.endswith(b"\n")
        self._synced = -math.inf
        self._cached = dict(filter(None, map(_read_line, text.splitlines())))

    @property
    def reasons(self) -> list[str]:
        """Messages of the failures that were not read from the file."""
        return self.objective.reasons

    def __call__(self, kernel, likelihood):
        identity = hashlib.sha256(self.objective.identity.encode()).hexdigest()
        place = {"objective": identity} | described(kernel, likelihood)
        key = json.dumps(place)
        if key not in self._cached:
            value, gradient = self.objective(kernel, likelihood)
            found = {"value": value if np.isfinite(value) else None, "gradient": gradient.tolist()}
            self._append({"at": place, **found})
            self._cached[key] = value, gradient
            self.computed += 1
        value, gradient = self._cached[key]
        return value, gradient.copy()

    def _append(self, line):
        """Append one line; start a new line after an incomplete one."""
        new = not self.path.exists()
        with os.fdopen(open_file(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
            file.write(b"\n" * self._torn + json.dumps(line).encode() + b"\n")
            file.flush()
            if time.monotonic() > self._synced + SYNC_SECONDS:
                os.fsync(file.fileno())
                self._synced = time.monotonic()
        self._torn = False
        if new:
            sync_directory(self.path.parent)


def _read_line(text):
    """Return key and evaluation of a line, or None if the line is incomplete."""
    try:
        line = json.loads(text)
        value = -np.inf if line["value"] is None else line["value"]
        return json.dumps(line["at"]), (value, np.array(line["gradient"], dtype=float))
    except (ValueError, KeyError, TypeError):
        return None
