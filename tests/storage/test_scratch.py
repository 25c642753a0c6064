"""Scratch directories go with their last user, and not with a fork of him."""

import os
import subprocess
import sys

from bcmdist.storage.temporary import Scratch


def test_they_go_with_their_last_user():
    scratch = Scratch()
    path = scratch.path
    assert os.path.isdir(path)
    del scratch
    assert not os.path.exists(path)


def test_a_fork_that_ends_leaves_them():
    """`sys.exit` in a fork ends whatever its parent had registered for its own end."""
    code = (
        "import os, sys\nfrom bcmdist.storage.temporary import Scratch\nscratch = Scratch()\npid = os.fork()\n"
        "if not pid:\n    sys.exit()\nos.waitpid(pid, 0)\nprint(scratch.path, os.path.isdir(scratch.path))\n"
    )
    path, there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
    assert there == "True"
    assert not os.path.exists(path)
