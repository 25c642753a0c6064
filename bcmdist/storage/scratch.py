"""Scratch directories, which go with their last user."""

import shutil
import tempfile
import weakref


class Scratch:
    """A directory that lives as long as somebody refers to it."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="bcmdist-")
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
