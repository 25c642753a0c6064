"""Runs what README.md shows: the Python snippet and the command lines, in a scratch directory.

The two installation lines are left out; the continuous integration runs them itself.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

README = Path(__file__).parent.parent / "README.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def measurements(path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (3000, 2))
    table = np.column_stack([x, np.sin(2 * x[:, 0]) + 0.1 * rng.standard_normal(3000)])
    np.savetxt(path, table, delimiter=",", header="a,b,target", comments="")


def main():
    (snippet,) = blocks("python")
    commands = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("bcmdist ")]
    assert len(commands) == 11, commands
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "snippet.py")
        script.write_text(snippet)
        subprocess.run([sys.executable, "-W", "error", script], cwd=folder, check=True)
        work = Path(folder, "commands")
        work.mkdir()
        measurements(work / "measurements.csv")
        for command in commands:
            print(f"$ {command}", flush=True)
            environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
            subprocess.run(command, shell=True, cwd=work, check=True, env=environment)


if __name__ == "__main__":
    main()
