"""Runs what README.md shows: each Python snippet as a script of its own, and the command lines, in a scratch directory.

The two installation lines are left out; the continuous integration runs them itself.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
from snippets import blocks, commands, run_command, run_python

README = Path(__file__).parent.parent / "README.md"


def measurements(path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (3000, 2))
    table = np.column_stack([x, np.sin(2 * x[:, 0]) + 0.1 * rng.standard_normal(3000)])
    np.savetxt(path, table, delimiter=",", header="a,b,target", comments="")


def main():
    found = blocks(README)
    snippets = [block for block in found if block.language == "python"]
    lines = [line for block in found if block.language == "bash" for line in commands(block)]
    assert lines, "README shows no commands"
    assert snippets, "README shows no Python"
    with tempfile.TemporaryDirectory() as folder:
        for snippet in snippets:
            started = time.perf_counter()
            run_python([snippet], folder)
            print(f"-- line {snippet.line}: {time.perf_counter() - started:.0f} s", flush=True)
        work = Path(folder, "commands")
        work.mkdir()
        measurements(work / "measurements.csv")
        for line in lines:
            run_command(line, work)


if __name__ == "__main__":
    main()
