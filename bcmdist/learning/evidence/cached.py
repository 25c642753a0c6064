"""Evaluations of an objective on disk: a learning run that was killed resumes where it was.

    FILE        one JSON object per line: what was evaluated, value (null where it failed), gradient

Every evaluation is appended and synced before it is used. A run that is started again asks for the same
evaluations in the same order, because optimisers are deterministic, and gets those it has made already
without touching the data. Numbers are written with all their digits. On a crash at most the line of the
moment is lost, or torn and skipped; two runs that share a file add lines that both may use.
"""

import hashlib
import json
import os
from pathlib import Path

import numpy as np

from bcmdist.errors import InvalidOption
from bcmdist.learning.evidence.objectives import EvidenceObjective
from bcmdist.model.model import described
from bcmdist.storage.disk import open_file, read_file, sync_directory


class CachedObjective:
    """An objective that keeps its evaluations in a file, and computes none twice.

    Parameters
    ----------
    objective : its `identity` tells evaluations of different data, partitions or query points apart, so
        that these may change on the way, and one file may serve several objectives
    url : path of the file; made where there is none
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
        self._known = dict(filter(None, map(_read_line, text.splitlines())))

    @property
    def reasons(self) -> list[str]:
        """Of failures that were not in the file."""
        return self.objective.reasons

    def __call__(self, kernel, likelihood):
        identity = hashlib.sha256(self.objective.identity.encode()).hexdigest()
        place = {"objective": identity} | described(kernel, likelihood)
        key = json.dumps(place)
        if key not in self._known:
            value, gradient = self.objective(kernel, likelihood)
            found = {"value": value if np.isfinite(value) else None, "gradient": gradient.tolist()}
            self._append({"at": place, **found})
            self._known[key] = value, gradient
            self.computed += 1
        value, gradient = self._known[key]
        return value, gradient.copy()

    def _append(self, line):
        """One line, durably; below a torn one it begins again."""
        new = not self.path.exists()
        with os.fdopen(open_file(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
            file.write(b"\n" * self._torn + json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._torn = False
        if new:
            sync_directory(self.path.parent)


def _read_line(text):
    """Place and evaluation of a line; None where it is torn."""
    try:
        line = json.loads(text)
        value = -np.inf if line["value"] is None else line["value"]
        return json.dumps(line["at"]), (value, np.array(line["gradient"], dtype=float))
    except (ValueError, KeyError, TypeError):
        return None
