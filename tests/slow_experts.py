"""Preloaded by Dask workers: half of the experts wait for a gate to open, while a test kills something."""

import os
import time
from pathlib import Path

from bcmdist.tasks.hearing import Expert

GATE = "BCMDIST_TEST_GATE"
FIRST_ROW = 1000  # of the partitions that wait


def dask_setup(worker):
    quick, gate = Expert.__call__, Path(os.environ[GATE])

    def slow(self, part, rows):
        while part.start >= FIRST_ROW and not gate.exists():
            time.sleep(0.02)
        return quick(self, part, rows)

    Expert.__call__ = slow
