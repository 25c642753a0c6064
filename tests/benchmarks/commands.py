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
    return run([sys.executable, "-m", "bcmdist", *map(str, arguments), "--json"], seconds=seconds)


def run(command, *, seconds=None, environment=None):
    """The JSON that a command prints. With all its workers it is stopped after so many seconds."""
    environment = os.environ | (environment or {})
    out = None
    with tempfile.TemporaryFile("w+") as log:
        pipes = {"stdout": subprocess.PIPE, "stderr": log, "text": True}
        with subprocess.Popen(command, **pipes, start_new_session=True, env=environment) as process:
            try:
                out, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        log.seek(0)
        output = log.read()
    last = " ".join(output.split()[-12:])
    if out is None:
        raise Unfinished(f"stopped after {seconds:g} s" + (f"; {last}" if last else ""))
    if process.returncode:
        print(" ".join(command), output, sep="\n", file=sys.stderr)
        raise Unfinished(f"failed: {last}")
    return json.loads(out)
