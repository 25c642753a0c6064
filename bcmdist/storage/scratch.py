"""Scratch directories, which go with their last user."""

import os
import shutil
import tempfile
import weakref


class Scratch:
    """A directory that lives as long as somebody in the process that made it refers to it."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="bcmdist-")
        weakref.finalize(self, _remove, self.path, os.getpid())


def _remove(path, maker):
    """Not in a fork, whose end is not that of what it was forked from."""
    if os.getpid() == maker:
        shutil.rmtree(path, ignore_errors=True)
