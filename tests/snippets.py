"""Code blocks of a page in Markdown, and how they are run: as somebody would who copies them from top to bottom."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCRIPT = "snippet.py"


class Block(NamedTuple):
    """A code block."""

    language: str
    line: int
    """of the page on which its text begins"""
    text: str


def blocks(page) -> list[Block]:
    """All of them, in order."""
    return blocks_of(Path(page).read_text(encoding="utf-8"))


def blocks_of(text: str) -> list[Block]:
    """As `blocks`, of the text of a page."""
    return [Block(m[1], text.count("\n", 0, m.start(2)), m[2]) for m in BLOCK.finditer(text)]


def commands(block: Block) -> list[str]:
    """The lines of a shell block that are ours; installations are not repeated."""
    return [line for line in block.text.splitlines() if line.startswith("bcmdist ")]


def run_python(some, folder, python=sys.executable) -> None:
    """Run blocks as one script, whose line numbers are those of the page; warnings are errors."""
    lines: list[str] = []
    for block in some:
        lines += [""] * (block.line - len(lines)) + block.text.splitlines()
    Path(folder, SCRIPT).write_text("\n".join(lines) + "\n", encoding="utf-8")
    subprocess.run([python, "-W", "error", SCRIPT], cwd=folder, check=True)


def run_command(line, folder, python=sys.executable) -> None:
    """Run a line of the shell with the commands of an environment on the path."""
    print(f"$ {line}", flush=True)
    environment = os.environ | {"PATH": f"{Path(python).parent}:{os.environ['PATH']}"}
    subprocess.run(line, shell=True, cwd=folder, check=True, env=environment)


def run_page(page, folder) -> int:
    """Run all of Python and shell in a page; Python between two shell blocks is one script. The number of blocks."""
    waiting: list[Block] = []
    found = [block for block in blocks(page) if block.language in ("python", "bash")]
    for block in found:
        if block.language == "python":
            waiting.append(block)
            continue
        _flush(waiting, folder)
        for line in commands(block):
            run_command(line, folder)
    _flush(waiting, folder)
    return len(found)


def _flush(waiting, folder):
    if waiting:
        run_python(waiting, folder)
        waiting.clear()
