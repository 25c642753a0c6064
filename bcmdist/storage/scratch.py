"""Temporary directories, removed with the last reference to them."""

import os
import shutil
import tempfile
import weakref


class Scratch:
    """A temporary directory that exists as long as the process that made it holds a reference to this object."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="bcmdist-")
        weakref.finalize(self, _remove, self.path, os.getpid())


def _remove(path, maker):
    """Remove a directory, but not in a forked process: the process that made the directory may still use it."""
    if os.getpid() == maker:
        shutil.rmtree(path, ignore_errors=True)
