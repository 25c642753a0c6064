"""Commands as processes of their own: their figures, or why there are none."""

import json
import os
import signal
import subprocess
import sys
import tempfile


class Unfinished(Exception):
    """A command failed or had to be stopped."""


def bcmdist(*arguments, seconds=None):
    """Figures of a command of bcmdist."""
    return run([sys.executable, "-m", "bcmdist.cli", *map(str, arguments), "--json"], seconds=seconds)


def run(command, *, seconds=None, environment=None):
    """The JSON that a command prints. With all its workers it is stopped after so many seconds."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            env=os.environ | (environment or {}),
        )
        try:
            out, _ = process.communicate(timeout=seconds)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            out = None
        log.seek(0)
        said = log.read()
    if out is None:
        raise Unfinished(f"stopped after {seconds:g} s; {' '.join(said.split()[-12:])}")
    if process.returncode:
        print(" ".join(command), said, sep="\n", file=sys.stderr)
        raise Unfinished(f"failed: {' '.join(said.split()[-12:])}")
    return json.loads(out)
